#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>
#include <psring/common/base/system/file.h>

namespace psring::optim {

// A shard is the file that one process writes for a checkpoint. Its grammar is in docs/checkpoints.md.

/// Names of the arrays that a run saves for each tensor: `values` for every tensor; for trained tensors also the
/// optimizer's slots, and the residual of each worker's error feedback.
inline constexpr const char* kValues = "values";
inline constexpr const char* kRowKeys = "keys";      ///< of tables' rows
inline constexpr const char* kRowCounts = "counts";  ///< as well: updates, and the last update
std::string slot_array(std::size_t slot);            ///< "optimizer.0", "optimizer.1"
std::string residual_array(std::size_t worker);      ///< "residual.0", numbered by worker

/// A part of a run's state that a process holds: the unit's elements `range` of one array.
struct StatePart {
  const UnitLayout* unit = nullptr;
  Range range;
  std::string array;
  ConstElements values;  ///< elements of the range; saved as f32
};

class TableRows;

/// The rows of a table that a process has: all rows of these buckets.
struct TablePart {
  const TableLayout* table = nullptr;
  Range buckets;
  const TableRows* rows = nullptr;
};

/// Writes the parts without padding, with a checksum for each MiB. The file gets its name once it is complete and on
/// the disk. Throws data, naming the file.
void write_shard(const std::string& file, std::uint64_t step, std::span<const StatePart> parts,
                 std::span<const TablePart> tables = {});

/// The elements `range` of a tensor, of one array, in a shard; or the rows of a table's buckets `range`.
struct Segment {
  std::string tensor;
  std::string array;
  Range range;
  std::uint64_t offset_bytes = 0;  ///< from the start of the file
  std::vector<std::uint32_t> crc;  ///< checksum of each block of kSegmentBlock elements; the last block may be shorter
  bool finite = true;              ///< no element is NaN or infinite
  std::optional<std::size_t> rows = {};  ///< of a table, in the order of hashed keys; nothing: of a tensor
  std::size_t width = 1;                 ///< words of 4 bytes of a row

  std::size_t words() const { return rows ? *rows * width : range.size(); }
};

inline constexpr std::size_t kSegmentBlock = std::size_t{256} << 10;

/// A shard to read from. The constructor reads and checks the index; elements are read on demand, and checked block by
/// block. Errors are data errors that name the file, also if elements are NaN or infinite. Safe for use from several
/// threads.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size_bytes() const { return file_.size_bytes(); }
  std::uint64_t step() const { return step_; }
  std::uint32_t index_crc() const { return index_crc_; }  ///< covers all other checksums, and so the whole file
  const std::vector<Segment>& segments() const { return segments_; }

  /// Reads elements `range` of the segment's tensor. REQUIRES: `segment` is one of segments() and contains the range.
  void read(const Segment& segment, Range range, std::span<float> out) const;
  /// Reads and checks a block of kSegmentBlock words. REQUIRES: `segment` is one of segments() and has the block.
  void read_block(const Segment& segment, std::size_t block, std::vector<float>& words) const;
  /// Reads and checks all blocks of a segment.
  void verify(const Segment& segment) const;

 private:
  void read_index();
  [[noreturn]] void fail_damaged(const std::string& reason) const;

  InputFile file_;
  std::uint64_t step_ = 0;
  std::uint32_t index_crc_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace psring::optim
