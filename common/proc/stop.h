#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <signal.h>

#include <psring/common/base/clock.h>
#include <psring/common/net/frame.h>

namespace psring::net {

/// The two sides of ending a job early, as pure state machines. All workers of a bsp job have to end before the same
/// step, while each of them is somewhere in a step or between two steps. So the coordinator asks all workers to pause.
/// Each worker answers at once with the first step that it has not begun, and begins no step until it is told where to
/// stop. The latest answer is a step that all workers can reach and that nobody has begun. A paused worker completes
/// its current step, so no other worker waits in vain.

/// The worker's side.
class StepGate {
 public:
  enum class Turn : std::uint8_t { go, wait, stop };

  /// The worker asks this before a step. `go`: the step begins.
  Turn ask(std::uint64_t step) {
    if (stop_ && step >= *stop_) return Turn::stop;
    if (!stop_ && paused_) return Turn::wait;
    unbegun_ = step + 1;
    return Turn::go;
  }
  /// The worker begins no step until it is told where to stop. Returns the first step that has not begun, or the step
  /// before which the worker was told to stop.
  std::uint64_t pause() {
    paused_ = true;
    return stop_.value_or(unbegun_);
  }
  void stop_before(std::uint64_t step) { stop_ = step; }

 private:
  std::uint64_t unbegun_ = 0;  ///< the first step that has not begun
  bool paused_ = false;
  std::optional<std::uint64_t> stop_;
};

/// The coordinator's side: one vote of all workers.
class StopVote {
 public:
  /// `own_steps`: workers do not wait for each other (ssp, asp), and each ends before its own next step.
  StopVote(std::set<Peer> workers, bool own_steps) : open_(std::move(workers)), own_steps_(own_steps) {}

  void answer(Peer worker, std::uint64_t step) {
    if (open_.erase(worker) > 0) answers_[worker] = step;
  }
  bool complete() const { return open_.empty(); }
  /// The step before which each worker stops. REQUIRES: complete.
  std::map<Peer, std::uint64_t> result() const {
    std::map<Peer, std::uint64_t> steps = answers_;
    std::uint64_t last = 0;
    for (const auto& [worker, step] : answers_) last = step > last ? step : last;
    if (!own_steps_)
      for (auto& [worker, step] : steps) step = last;
    return steps;
  }

 private:
  std::set<Peer> open_;  ///< workers that have not answered yet
  bool own_steps_;
  std::map<Peer, std::uint64_t> answers_;
};

/// Tells which signals of a process are a new request. A terminal that closes sends SIGHUP twice, and a service manager
/// sends SIGTERM and then SIGHUP: signals within a second of the first signal are the same request. SIGQUIT is always a
/// second request.
class StopRequests {
 public:
  enum class Request : std::uint8_t { first, same, again };
  static constexpr Nanoseconds kSame = std::chrono::seconds(1);

  Request take(int signal, Moment now) {
    const bool is_first = !first_;
    if (is_first) first_ = now;
    if (signal == SIGQUIT) return Request::again;
    if (is_first) return Request::first;
    return now - *first_ < kSame ? Request::same : Request::again;
  }

 private:
  std::optional<Moment> first_;
};

/// The line for people at the first request.
std::string notice_of(int signal);

}  // namespace psring::net
