#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/clock.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/copy_queue.h>

namespace psring {

class Events;

/// A GPU of this host, with one queue of work that runs in order. Belongs to one thread. Kernels may be held back until
/// the queue gets other work or the host asks for a result: sequences of kernels that recur are launched together. A
/// later call throws the errors of queued work, and names the call that saw the error first.
class Device : public Processor {
 public:
  /// "NVIDIA H200 (GPU 0)"
  virtual std::string name() const = 0;

  /// Returns zeroed memory of the device, aligned to 256 bytes. Throws data if the device has not enough memory.
  /// `category`: the memory's purpose; the caller books the memory.
  virtual std::byte* allocate(std::size_t bytes, Category category) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  /// Memory of the whole device, used by any process, as reported by the driver.
  struct MemoryUse {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    std::size_t held_bytes = 0;  ///< decrease of the free memory since this object was made: memory of this process, if
                                 ///< no other process uses the GPU
  };
  virtual MemoryUse memory() const = 0;
  /// Books the memory that kernels need for themselves, now and later, as activations. REQUIRES: the ledger outlives
  /// the device.
  virtual void book(MemoryLedger& ledger) = 0;

  /// Returns zeroed, pinned memory of the host, for copies that overlap with the host's work. REQUIRES: the device
  /// outlives the memory.
  virtual std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) = 0;
  /// Pins existing memory of the host as long as the returned object lives. Returns null if the driver cannot pin the
  /// memory, for example in a sandbox. Then copies are slower, and the host waits for them.
  virtual std::shared_ptr<void> pin(std::span<std::byte> memory) = 0;
  virtual std::unique_ptr<CopyQueue> make_copy_queue() = 0;
  /// Queues a copy between the device's memory and the host's pinned memory, in either direction. The host must not
  /// touch the pinned side until `wait` for a later mark has returned.
  virtual void copy_bytes(const void* from, void* to, std::size_t bytes) = 0;

  /// A position in the queue.
  using Mark = std::uint64_t;
  virtual Mark mark() = 0;
  /// Returns once the device has reached the mark.
  virtual void wait(Mark mark) = 0;
  /// Sets a function that is called after each `wait`. The function throws if the awaited result will never come: an
  /// aborted collective lets the queue go on.
  virtual void check_after_wait(std::function<void()> check) = 0;

  /// A part of the queue, from construction to destruction. Stretches do not nest. A stretch that an exception ends is
  /// not recorded.
  class Stretch {
   public:
    ~Stretch() noexcept(false) {
      if (!active_) return;
      if (std::uncaught_exceptions() > exceptions_)
        device_.drop_stretch();
      else
        device_.end_stretch();
    }
    Stretch(const Stretch&) = delete;
    Stretch& operator=(const Stretch&) = delete;

   protected:
    Stretch(Device& device, bool active) : device_(device), active_(active) {}

   private:
    Device& device_;
    const bool active_;
    const int exceptions_ = std::uncaught_exceptions();
  };
  /// A stretch in which the queue waits for other processes.
  class Stall : public Stretch {
   public:
    explicit Stall(Device& device) : Stretch(device, true) { device.begin_stretch("waits", true); }
  };
  /// A stretch of named work, such as "forward 3". Costs one branch if there is no listener.
  class Section : public Stretch {
   public:
    Section(Device& device, std::string_view name, std::size_t number) : Stretch(device, device.is_shown()) {
      if (device.is_shown()) device.begin_stretch(std::string(name) + ' ' + std::to_string(number), false);
    }
  };
  /// Returns the total time of all stalls that are known to be over.
  virtual Nanoseconds stalled() = 0;
  /// Emits stalls and sections as DeviceWork once they are over. REQUIRES: the stream outlives the last other call.
  virtual void report_to(Events& events) = 0;
  /// Returns once all queued work is done.
  virtual void finish() = 0;

  /// Sets whether recurring sequences are launched as CUDA graphs; the default is true.
  virtual void use_graphs(bool use) = 0;
  /// The number of graph launches so far.
  virtual std::size_t graphs_launched() const = 0;

 protected:
  virtual bool is_shown() const = 0;
  virtual void begin_stretch(std::string name, bool stalls) = 0;
  virtual void end_stretch() = 0;
  virtual void drop_stretch() noexcept = 0;
};

/// Throws usage if this build has no CUDA; the error says how to enable CUDA.
void require_cuda();

/// Returns the number of GPUs of this host. Throws like make_cuda_device if there is none.
std::size_t cuda_devices();

/// Opens GPU `index` of this host. Throws usage if the GPU does not exist or this build has no CUDA; the error says how
/// to help.
std::unique_ptr<Device> make_cuda_device(std::size_t index);

}  // namespace psring
