#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <psring/common/base/events.h>

namespace psring {

class Membership;

/// Tells the coordinator once a second what a role does now, for live/<role>-<rank>.json (docs/live.md). A thread of
/// its own sends the statuses, so training never waits. A status is dropped if the previous one is still in flight.
class LiveLog final : public EventListener {
 public:
  /// REQUIRES: the membership outlives it, and has joined.
  explicit LiveLog(Membership& member);
  LiveLog(const LiveLog&) = delete;
  LiveLog& operator=(const LiveLog&) = delete;

  void on_event(const Event& event) override;
  void on_begin(const Event& begun) override;
  /// For a server: the version of its parameters.
  void set_updates(std::uint64_t version) { updates_ = version; }
  /// Sends the last status, and ends the thread. Call it before the link is flushed.
  void finish();

 private:
  /// An outermost Activity, or one that waits, which has begun and has not ended.
  struct Open {
    std::string_view name;
    Moment start;
    PeerName peer;
    bool waits = false;
  };

  void run(const std::stop_token& stop);
  void send(bool is_last);

  Membership& member_;
  std::atomic<std::uint64_t> updates_ = 0;

  std::mutex events_mutex_;
  std::vector<Open> open_;     ///< guarded by events_mutex_, as the following; the deepest last
  Nanoseconds busy_{0};        ///< time in outermost activities that have ended
  Nanoseconds steps_time_{0};  ///< of all steps
  Nanoseconds exposed_{0};     ///< the part of it that was spent waiting for communication
  std::uint64_t samples_ = 0;
  std::uint64_t step_ = 0;

  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  ///< the last member: it ends before the others
};

}  // namespace psring
