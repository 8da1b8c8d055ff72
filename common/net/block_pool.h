#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace psring::net {

/// Blocks of 64-byte aligned memory, in sizes of powers of two, kept for the next message: fresh pages would
/// halve the speed. From any thread. REQUIRES: owned by a shared_ptr.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// At least so many bytes. The block returns by itself, and keeps the pool alive until then.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete[](data, kAlignment); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  Block pop(std::size_t size);
  void push(std::size_t size, Block block);

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Block>> free_;  ///< guarded by mutex_
};

}  // namespace psring::net
