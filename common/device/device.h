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
#include <psring/common/device/tensor_kernels.h>

namespace psring {

class Events;

/// A GPU of this host, and one queue of work on it, in which everything that it is told happens in order. Belongs to
/// one thread. Kernels may leave for the device no sooner than something else is told, or asked: sequences of them that
/// come again leave as one. Errors of what was queued are thrown by a later call, and name the call that saw them
/// first.
class Device : public Processor {
 public:
  /// "NVIDIA H200 (GPU 0)"
  virtual std::string name() const = 0;

  /// Memory of the device: zero, on a multiple of 256 bytes. Throws data where it has not as much. `category`: what it
  /// is for; that is booked by who asks for it.
  virtual std::byte* allocate(std::size_t bytes, Category category) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  /// Of the whole device, as its driver says, whoever uses it.
  struct MemoryUse {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    std::size_t held_bytes = 0;  ///< what was free when this was made, less what is now: this process's, if it is alone
  };
  virtual MemoryUse memory() const = 0;
  /// What kernels need of their own, now and later, is booked there, as activations. REQUIRES: the ledger outlives it.
  virtual void book(MemoryLedger& ledger) = 0;

  /// Memory of the host that the device copies from and to while the host goes on: zero, pinned. REQUIRES: the device
  /// outlives it.
  virtual std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) = 0;
  /// Memory of the host is pinned, too, for as long as what is returned lives; null where the driver does not pin it (a
  /// sandbox may not let it). Then copies of it are slower, and the host waits for them.
  virtual std::shared_ptr<void> pin(std::span<std::byte> memory) = 0;
  virtual std::unique_ptr<CopyQueue> make_copy_queue() = 0;
  /// Queues a copy between pinned memory, or the device's, and the device's, or pinned. The host leaves the pinned side
  /// alone until `wait` for a later mark has returned.
  virtual void copy_bytes(const void* from, void* to, std::size_t bytes) = 0;

  /// A place in the queue.
  using Mark = std::uint64_t;
  virtual Mark mark() = 0;
  /// Returns once the device has come there.
  virtual void wait(Mark mark) = 0;
  /// From now on `check` is called whenever `wait` has waited, and throws where what was waited for never came: a
  /// collective that was given up lets the queue go on.
  virtual void check_after_wait(std::function<void()> check) = 0;

  /// A part of the queue, from its making to its end; no other begins meanwhile. One that an exception ends is none.
  class Stretch {
   public:
    ~Stretch() noexcept(false) {
      if (!told_) return;
      if (std::uncaught_exceptions() > exceptions_)
        device_.drop_stretch();
      else
        device_.end_stretch();
    }
    Stretch(const Stretch&) = delete;
    Stretch& operator=(const Stretch&) = delete;

   protected:
    Stretch(Device& device, bool told) : device_(device), told_(told) {}

   private:
    Device& device_;
    const bool told_;
    const int exceptions_ = std::uncaught_exceptions();
  };
  /// The queue stands still for others.
  class Stall : public Stretch {
   public:
    explicit Stall(Device& device) : Stretch(device, true) { device.begin_stretch("waits", true); }
  };
  /// It works at what is named, such as "forward 3". Costs a branch if nobody listens.
  class Section : public Stretch {
   public:
    Section(Device& device, std::string_view name, std::size_t number) : Stretch(device, device.is_shown()) {
      if (device.is_shown()) device.begin_stretch(std::string(name) + ' ' + std::to_string(number), false);
    }
  };
  /// How long it has stood still so far, as far as is known now.
  virtual Nanoseconds stalled() = 0;
  /// From now on stalls and sections are emitted as DeviceWork, once they are over. REQUIRES: the stream outlives all
  /// other calls.
  virtual void report_to(Events& events) = 0;
  /// On return all that was told is done.
  virtual void finish() = 0;

  /// Whether sequences that come again leave as CUDA graphs: so they do unless told otherwise.
  virtual void use_graphs(bool use) = 0;
  /// How often one has.
  virtual std::size_t graphs_launched() const = 0;

  virtual TensorKernels& kernels() = 0;

 protected:
  virtual bool is_shown() const = 0;
  virtual void begin_stretch(std::string name, bool stalls) = 0;
  virtual void end_stretch() = 0;
  virtual void drop_stretch() noexcept = 0;
};

/// Throws usage where this build has no CUDA, and says how to get it.
void require_cuda();

/// GPUs of this host. Throws as make_cuda_device where there is none.
std::size_t cuda_devices();

/// GPU `index` of this host. Throws usage where there is none, or this build has no CUDA, and says what would help.
std::unique_ptr<Device> make_cuda_device(std::size_t index);

}  // namespace psring
