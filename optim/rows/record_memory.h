#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/mapping.h>
#include <psring/common/device/pages_ahead.h>

namespace psring::optim {

/// A row's memory: the hashed key, the number of its updates, the step of its last update, then its values and the
/// optimizer's state in f32. One row is one unit of consistency, and one or two cache misses.
struct RecordHeader {
  std::uint64_t key = 0;
  std::uint32_t updates = 0;
  std::uint32_t last = 0;
};
static_assert(sizeof(RecordHeader) == 16);

/// Records of one size, numbered from 0, in one sparse mapping with huge pages advised. Memory is booked in steps of
/// 2 MiB: the values' share as parameters, the rest as optimizer state. Pages for the next records are touched ahead:
/// an eighth of what is booked, and 8 MiB at most.
class RecordMemory {
 public:
  static constexpr std::size_t kStepBytes = std::size_t{2} << 20;
  static constexpr std::size_t kMostAhead = 4 * kStepBytes;

  /// The sizes of a record, and what `rows` of them book.
  struct Sizes {
    std::size_t values = 0;  ///< floats
    std::size_t state = 0;   ///< floats of all slots

    /// Bytes of a record: a multiple of 32, or those of the header alone.
    std::size_t stride() const;
    std::size_t booked_bytes(std::size_t rows) const;
    /// The part of booked bytes that counts as parameters. It grows with `booked`, and so does the rest: the peak of
    /// both is that of the most rows.
    std::size_t parameter_bytes(std::size_t booked) const;
  };

  /// `most_bytes`: memory beyond it is refused. REQUIRES: the ledger outlives this.
  RecordMemory(Sizes sizes, std::size_t most_bytes, MemoryLedger& ledger);
  ~RecordMemory();
  RecordMemory(const RecordMemory&) = delete;
  RecordMemory& operator=(const RecordMemory&) = delete;

  /// Records that are in use.
  std::size_t size() const { return rows_ - free_; }
  /// Records that ever were in use at once: those in use have numbers below.
  std::size_t used() const { return rows_; }
  bool is_free(std::uint32_t row) const { return header(row).updates == 0; }
  /// Is this the record of a key?
  bool holds(std::uint32_t row, std::uint64_t key) const {
    return row < rows_ && header(row).key == key && !is_free(row);
  }
  /// Adds a zeroed record, and returns its number. The record is free until its header counts an update. Throws data if
  /// the limit is reached.
  std::uint32_t add();
  /// Makes a record free. Its memory stays booked, and is used again first.
  void remove(std::uint32_t row);
  RecordHeader& header(std::uint32_t row) const { return *reinterpret_cast<RecordHeader*>(at(row)); }
  /// The row's values, followed by its state.
  float* values(std::uint32_t row) const { return reinterpret_cast<float*>(at(row) + sizeof(RecordHeader)); }
  /// The whole record: header, values, state.
  std::byte* record(std::uint32_t row) const { return at(row); }
  /// The bytes from one record to the next.
  std::size_t stride() const { return stride_; }
  /// Records `first` to `first + count`, one after the other.
  std::span<const std::byte> records(std::size_t first, std::size_t count) const {
    return {memory_.data() + first * stride_, count * stride_};
  }
  void prefetch(std::uint32_t row) const {
    constexpr std::size_t kLine = 64;
    const std::byte* const record = at(row);
    for (std::size_t byte = 0; byte < stride_; byte += kLine) __builtin_prefetch(record + byte);
    __builtin_prefetch(record + stride_ - 1);  // a record may begin in the middle of a line
  }

 private:
  std::byte* at(std::uint32_t row) const { return memory_.data() + row * stride_; }
  void book(std::size_t bytes);
  void touch_ahead();

  const Sizes sizes_;
  const std::size_t stride_;
  MemoryLedger& ledger_;
  Mapping memory_;
  PagesAhead ahead_;  ///< ends before the mapping does
  std::size_t rows_ = 0;
  std::size_t free_ = 0;
  std::uint32_t next_free_ = 0;  ///< a free record's key is the number of the next one
  std::size_t booked_ = 0;
  std::size_t reached_ = 0;  ///< bytes that are booked, or are touched ahead
};

}  // namespace psring::optim
