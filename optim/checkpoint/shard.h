#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/file.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/range.h>

namespace psring::optim {

// A shard is what one process writes of a checkpoint: one file. Its grammar is in docs/checkpoints.md.

/// What a run keeps for each element, by name: every tensor has `values`, trained ones the optimizer's slots beside,
/// and what each worker's error feedback keeps.
inline constexpr const char* kValues = "values";
std::string slot_array(std::size_t slot);        ///< "optimizer.0", "optimizer.1"
std::string residual_array(std::size_t worker);  ///< "residual.0", by rank

/// A part of a run's state that a process holds: elements `range` of a unit, of one array.
struct StatePart {
  const UnitLayout* unit = nullptr;
  Range range;
  std::string array;
  ConstElements values;  ///< as many as the range has; saved as f32
};

/// Writes them, but for padding, with a checksum for each MiB; the file takes its name when it is whole and on the
/// disk. Throws data, naming the file.
void write_shard(const std::string& file, std::uint64_t step, std::span<const StatePart> parts);

/// Elements `range` of a tensor, of one array, in a shard.
struct Segment {
  std::string tensor;
  std::string array;
  Range range;
  std::uint64_t offset_bytes = 0;  ///< from the start of the file
  std::vector<std::uint32_t> crc;  ///< of each block of kSegmentBlock elements, the last one less
  bool finite = true;              ///< none of its elements is NaN or infinite
};

inline constexpr std::size_t kSegmentBlock = std::size_t{256} << 10;

/// A shard to read from. Opening reads and checks its index; elements are read on demand, and checked block by block.
/// Errors are data errors that name the file; reading elements that are NaN or infinite is one. Safe for use from
/// several threads.
class ShardFile {
 public:
  explicit ShardFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size_bytes() const { return file_.size_bytes(); }
  std::uint64_t step() const { return step_; }
  std::uint32_t index_crc() const { return index_crc_; }  ///< covers all checksums in it, so the whole file
  const std::vector<Segment>& segments() const { return segments_; }

  /// Reads elements `range` of the segment's tensor. REQUIRES: the segment has them; it is one of segments().
  void read(const Segment& segment, Range range, std::span<float> out) const;

 private:
  void read_index();
  [[noreturn]] void fail_damaged(const std::string& what) const;

  InputFile file_;
  std::uint64_t step_ = 0;
  std::uint32_t index_crc_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace psring::optim
