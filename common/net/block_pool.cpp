#include <algorithm>
#include <bit>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/common/net/block_pool.h>

namespace psring::net {

std::shared_ptr<std::byte> BlockPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 64));
  Block block = pop(size);
  if (!block) block.reset(new (kAlignment) std::byte[size]);
  return {block.release(), [pool = shared_from_this(), size](std::byte* data) { pool->push(size, Block(data)); }};
}

BlockPool::Block BlockPool::pop(std::size_t size) {
  const MutexLock lock(mutex_);
  std::vector<Block>& blocks = free_[size];
  if (blocks.empty()) return nullptr;
  Block block = std::move(blocks.back());
  blocks.pop_back();
  return block;
}

void BlockPool::push(std::size_t size, Block block) {
  const MutexLock lock(mutex_);
  free_[size].push_back(std::move(block));
}

}  // namespace psring::net
