#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include <psring/common/device/mapping.h>
#include <psring/common/device/pages_ahead.h>

namespace psring::optim {

/// Memory for the slots of many hash maps that grow by doubling, so that their blocks have few sizes and many blocks
/// have the same one. The large blocks of a size lie side by side in one sparse mapping with huge pages: a search then
/// misses the processor's table of pages less often, and a map that grows takes few page faults. The pages of the next
/// two blocks are touched ahead, and those of a freed block go back to the host.
class SlotMemory {
 public:
  /// `most_blocks`: of one size at a time.
  explicit SlotMemory(std::size_t most_blocks) : most_blocks_(most_blocks) {}

  /// Returns memory that is aligned to a line of the cache.
  std::byte* allocate(std::size_t bytes);
  /// REQUIRES: `block` was allocated with this size.
  void free(std::byte* block, std::size_t bytes);

 private:
  /// The blocks of one size.
  struct Blocks {
    explicit Blocks(std::size_t bytes) : memory(bytes) {}

    Mapping memory;
    std::size_t used = 0;              ///< blocks in use
    std::size_t reached = 0;           ///< blocks that were ever in use: those behind were not touched
    std::size_t touched = 0;           ///< blocks that were reached, or are touched ahead
    std::vector<std::byte*> returned;  ///< blocks before it that are free
  };

  const std::size_t most_blocks_;
  std::map<std::size_t, Blocks> sizes_;  ///< by the bytes of a block
  PagesAhead ahead_;                     ///< ends before the blocks do
};

}  // namespace psring::optim
