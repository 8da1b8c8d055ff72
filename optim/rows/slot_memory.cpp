#include <algorithm>
#include <new>

#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/slot_memory.h>

namespace psring::optim {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlocksAhead = 2;  ///< blocks that are touched ahead
/// Smaller blocks come from the heap: all blocks of their size would not fill a few huge pages.
constexpr std::size_t kLeastMapped = std::size_t{8} << 10;

}  // namespace

std::byte* SlotMemory::allocate(std::size_t bytes) {
  const std::size_t block = round_up(bytes, kLine);
  if (block < kLeastMapped) return static_cast<std::byte*>(::operator new (block, std::align_val_t{kLine}));
  Blocks& blocks = sizes_.try_emplace(block, most_blocks_ * block).first->second;
  if (blocks.returned.empty()) {
    check(blocks.reached < most_blocks_, "more than {} blocks of {} bytes", most_blocks_, block);
    blocks.returned.push_back(blocks.memory.data() + blocks.reached++ * block);
    const std::size_t ahead = std::min(blocks.reached + kBlocksAhead, most_blocks_);
    const std::size_t begin = std::max(blocks.touched, blocks.reached);
    if (begin < ahead) ahead_.touch(blocks.memory.bytes().subspan(begin * block, (ahead - begin) * block));
    blocks.touched = std::max(begin, ahead);
  }
  ++blocks.used;
  std::byte* const memory = blocks.returned.back();
  blocks.returned.pop_back();
  return memory;
}

void SlotMemory::free(std::byte* memory, std::size_t bytes) {
  const std::size_t block = round_up(bytes, kLine);
  if (block < kLeastMapped) return ::operator delete (memory, std::align_val_t{kLine});
  const auto found = sizes_.find(block);
  Blocks& blocks = found->second;
  if (--blocks.used == 0) {
    ahead_.forget(blocks.memory.bytes());
    sizes_.erase(found);
    return;
  }
  const auto begin = static_cast<std::size_t>(memory - blocks.memory.data());
  blocks.memory.discard({begin, begin + block});
  blocks.returned.push_back(memory);
}

}  // namespace psring::optim
