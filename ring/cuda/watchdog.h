#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/device/device.h>
#include <psring/ring/call.h>
#include <psring/ring/cuda/communicator.h>
#include <psring/ring/shm_group.h>

namespace psring::ring::cuda {

/// Sees to it that nobody waits for a device that waits for a lost rank. A thread looks whether the job has failed, an
/// operation takes too long, or NCCL has an error of its own; then the communicators are aborted, so that the device's
/// queue goes on, and `check` throws what it was, from then on. A rank's groups, and the device, share one.
class Watchdog {
 public:
  /// REQUIRES: the device outlives it.
  Watchdog(Device& device, GroupOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Throws what has gone wrong.
  void check() const {
    if (failed_) rethrow();
  }
  /// What is under way ends, in all groups: this rank does not go on.
  void give_up();

  void add(Communicator& communicator);
  void remove(Communicator& communicator);
  /// An operation is under way until the event is reached. `rank`: for errors.
  void began(std::shared_ptr<const psring::cuda::Event> done, const Call& call, std::uint64_t number, std::size_t rank);

 private:
  struct UnderWay {
    std::shared_ptr<const psring::cuda::Event> done;
    Call call;
    std::uint64_t number = 0;
    std::size_t rank = 0;
    Moment since{};
  };

  void run(const std::stop_token& stop);
  /// What has gone wrong, as far as can be seen now.
  std::optional<Error> look();
  std::optional<Error> too_slow();
  std::optional<Error> of_nccl();
  void give_up(const Error& error);
  [[noreturn]] void rethrow() const;

  Device& device_;
  const GroupOptions options_;
  const int gpu_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Error> error_;       ///< is written once
  std::atomic<bool> failed_{false};  ///< error_ is there, to be read by all
  std::vector<Communicator*> communicators_;
  std::deque<UnderWay> under_way_;  ///< in the order in which they began
  std::optional<Moment> nccl_failed_;
  std::jthread thread_;
};

}  // namespace psring::ring::cuda
