#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <psring/common/base/memory_ledger.h>

namespace psring::optim {

/// Finds the row of a hashed key: 256 hash maps, chosen by bits 36 to 43 of the key, which no owner's range of buckets
/// fixes. Growth of one map therefore pauses only briefly, and the maps grow at different loads. The capacities are
/// chosen here and not by the hash map's library, so that the memory is a function of the numbers of keys.
class RowIndex {
 public:
  static constexpr std::size_t kMaps = 256;
  static constexpr std::uint32_t kNoRow = ~std::uint32_t{0};

  /// The map of a hashed key.
  static constexpr std::size_t map_of(std::uint64_t h) { return static_cast<std::size_t>(h >> 36) % kMaps; }
  /// The bytes that an index books whose maps hold `keys` keys each: 17 a slot, which are a key, a row and a control
  /// byte. A map that grows holds its old slots as well until its keys are moved; these are not booked.
  static std::size_t booked_bytes(std::span<const std::size_t, kMaps> keys);

  /// REQUIRES: the ledger outlives the index.
  explicit RowIndex(MemoryLedger& ledger);
  ~RowIndex();
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  std::size_t size() const { return size_; }
  /// Writes the row of each key, or kNoRow. REQUIRES: rows.size() == keys.size().
  void find(std::span<const std::uint64_t> keys, std::span<std::uint32_t> rows) const;
  /// REQUIRES: the index does not have the key.
  void insert(std::uint64_t key, std::uint32_t row);
  /// Takes keys out of the index. The maps that lose keys are built anew, so that their capacities stay a function of
  /// the numbers of keys. REQUIRES: the index has the keys.
  void erase(std::span<const std::uint64_t> keys);

 private:
  struct Maps;

  MemoryLedger& ledger_;
  std::unique_ptr<Maps> maps_;
  std::size_t size_ = 0;
  std::size_t booked_ = 0;
};

}  // namespace psring::optim
