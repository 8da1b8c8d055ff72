#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace psring::worker {

/// Finds the different keys of a batch, in ascending order, and the place of each key among them. A hash table that
/// lives on finds them; one pass by their leading bits, and an insertion sort of each group, put them in order.
class UniqueKeys {
 public:
  /// `most`: keys of a batch, at most.
  explicit UniqueKeys(std::size_t most);

  /// Writes the different keys and the place of each; returns their number. Keys are hashed already. REQUIRES:
  /// keys.size() <= most, and the outputs are as long.
  std::size_t find(std::span<const std::uint64_t> keys, std::span<std::uint64_t> unique,
                   std::span<std::uint32_t> places);
  /// The bytes that `find` keeps for batches of `most` keys.
  static std::size_t size_bytes(std::size_t most);

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t place = 0;
    std::uint32_t batch = 0;  ///< the slot holds a key if this is the current batch
  };
  void sort(std::span<std::uint64_t> unique);

  std::vector<Slot> slots_;  ///< a power of 2, at least twice the keys
  std::uint32_t batch_ = 0;
  std::vector<std::uint32_t> ranks_;  ///< by the order of first occurrence: the place in ascending order
  std::vector<std::uint32_t> from_;   ///< the inverse
  std::vector<std::uint64_t> found_;  ///< in the order of first occurrence
  std::vector<std::uint32_t> groups_;
};

}  // namespace psring::worker
