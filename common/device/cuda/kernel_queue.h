#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/cuda/launch.h>
#include <psring/common/device/cuda/launches.h>
#include <psring/common/device/cuda/pool.h>
#include <psring/common/device/device.h>

namespace psring::cuda {

/// Throws if a launch failed. `kernel`: the name in the error.
void check_launch(cudaError_t error, const char* kernel);

/// The kernels that a device has queued, and the memory that they need for themselves. Code of other folders queues its
/// kernels here. Belongs to the device's thread.
class KernelQueue {
 public:
  /// REQUIRES: the stream and the pool outlive this object.
  KernelQueue(cudaStream_t stream, unsigned multiprocessors, Pool& pool)
      : pool_(pool), launches_(stream), queue_{stream, multiprocessors} {}
  /// Waits for the stream.
  ~KernelQueue();
  KernelQueue(const KernelQueue&) = delete;
  KernelQueue& operator=(const KernelQueue&) = delete;

  /// Returns the queue after launching all pending kernels.
  const Queue& flushed() {
    launches_.flush();
    return queue_;
  }
  cudaStream_t stream() const { return queue_.stream; }
  Launches& launches() { return launches_; }
  const Launches& launches() const { return launches_; }

  /// Queues a function that launches kernels. `key` must describe all that the function does.
  void add(CallKey key, std::function<void(const Queue&)> launch) {
    launches_.add(std::move(key), [this, launch = std::move(launch)] { launch(queue_); });
  }
  /// Queues a kernel. `arguments`: those after the queue.
  template <class... Parameters, class... Arguments>
  void call(const char* name, cudaError_t (*kernel)(const Queue&, Parameters...), const Arguments&... arguments) {
    const std::tuple<std::decay_t<Parameters>...> values(arguments...);
    CallKey key;
    std::apply([&](const auto&... each) { key.add(kernel, each...); }, values);
    add(std::move(key), [name, kernel, values](const Queue& queue) {
      check_launch(std::apply([&](const auto&... each) { return kernel(queue, each...); }, values), name);
    });
  }

  /// Returns memory of the pool, or null if there is none even after all graphs were destroyed, which hold memory, too.
  std::byte* allocate(std::size_t bytes, Pool::Kind kind);
  /// Returns memory that the next kernel may use while it runs.
  float* scratch(std::size_t floats);
  /// Returns a second such memory, whose size never changes after the first call.
  void* workspace(std::size_t bytes);
  /// Books scratch memory and workspace, now and later, as activations. REQUIRES: the ledger outlives the queue.
  void book(MemoryLedger& ledger);

 private:
  void book_more(std::size_t bytes);

  std::byte* scratch_memory(std::size_t bytes);

  Pool& pool_;
  Launches launches_;
  const Queue queue_;  ///< without the pending kernels
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;  ///< the largest request so far
  std::byte* workspace_ = nullptr;
  std::size_t booked_bytes_ = 0;
  MemoryLedger* ledger_ = nullptr;
};

/// Returns the device's queue of kernels. REQUIRES: make_device made the device.
KernelQueue& kernel_queue_of(Device& device);

}  // namespace psring::cuda
