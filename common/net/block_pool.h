#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include <psring/common/base/system/mutex.h>

namespace psring::net {

/// A pool of 64-byte aligned memory blocks in sizes of powers of two. Blocks are reused for later messages, because
/// fresh pages would halve the speed. Safe for use from several threads. REQUIRES: a shared_ptr owns the pool.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// Returns a block of at least `bytes` bytes. The block returns to the pool when it is released, and keeps the pool
  /// alive until then.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete[](data, kAlignment); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  Block pop(std::size_t size);
  void push(std::size_t size, Block block);

  Mutex mutex_;
  std::map<std::size_t, std::vector<Block>> free_ PSRING_GUARDED_BY(mutex_);
};

}  // namespace psring::net
