#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/device/device.h>
#include <psring/ring/call.h>
#include <psring/ring/cuda/communicator.h>
#include <psring/ring/group_options.h>

namespace psring::ring::cuda {

/// Ends waits for a device that waits for a lost rank. A thread checks whether the job has failed, an operation takes
/// too long, or NCCL has an error of its own. Then it aborts the communicators, so that the device's queue goes on, and
/// from then on `check` throws that error. All groups of a rank, and the device, share one watchdog.
class Watchdog {
 public:
  /// REQUIRES: the device outlives the watchdog.
  Watchdog(Device& device, GroupOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Throws the error, if there is one.
  void check() const {
    if (failed_) rethrow();
  }
  /// Aborts the operations in flight of all groups: this rank does not go on.
  void give_up();

  void add(Communicator& communicator);
  void remove(Communicator& communicator);
  /// An operation is in flight until the event is reached. `rank`: for errors.
  void began(std::shared_ptr<const psring::cuda::Event> done, const Call& call, std::uint64_t number, std::size_t rank);

 private:
  struct InFlight {
    std::shared_ptr<const psring::cuda::Event> done;
    Call call;
    std::uint64_t number = 0;
    std::size_t rank = 0;
    Moment since{};
  };

  void run(const std::stop_token& stop);
  /// Looks for an error.
  std::optional<Error> look() PSRING_REQUIRES(mutex_);
  std::optional<Error> too_slow() PSRING_REQUIRES(mutex_);
  std::optional<Error> of_nccl() PSRING_REQUIRES(mutex_);
  void give_up(const Error& error) PSRING_REQUIRES(mutex_);
  [[noreturn]] void rethrow() const;

  Device& device_;
  const GroupOptions options_;
  const int gpu_;
  mutable Mutex mutex_;
  StoppableCondition changed_;
  std::optional<Error> error_;       ///< written once
  std::atomic<bool> failed_{false};  ///< error_ is complete, and all threads may read it
  std::vector<Communicator*> communicators_ PSRING_GUARDED_BY(mutex_);
  std::deque<InFlight> in_flight_ PSRING_GUARDED_BY(mutex_);  ///< in the order of their calls
  std::optional<Moment> nccl_failed_ PSRING_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace psring::ring::cuda
