#pragma once

#include <algorithm>
#include <compare>
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
/// Each worker answers at once with the first point that it has not passed, and begins nothing until it receives the
/// stopping point. The latest answer is a point that all workers can reach and that no worker has passed. A paused
/// worker completes its current step, or piece of an evaluation, so no other worker waits in vain.

/// A moment at which a worker can end: before a step, or before a piece of the evaluation that precedes the step.
/// Points are ordered as a worker comes to them.
struct StopPoint {
  static constexpr std::uint64_t kNoPiece = ~std::uint64_t{0};

  std::uint64_t step = 0;
  std::uint64_t piece = kNoPiece;  ///< kNoPiece: the step itself, after the evaluation

  auto operator<=>(const StopPoint&) const = default;
};

/// The worker's side.
class StepGate {
 public:
  enum class Turn : std::uint8_t { go, wait, stop };

  /// The worker asks this before a step, and before a piece of an evaluation. `go`: it begins.
  Turn ask(StopPoint point) {
    if (stop_ && point >= *stop_) return Turn::stop;
    if (!stop_ && paused_) return Turn::wait;
    unbegun_ =
        point.piece == StopPoint::kNoPiece ? StopPoint{point.step + 1, 0} : StopPoint{point.step, point.piece + 1};
    return Turn::go;
  }
  /// The worker begins nothing until it receives the stopping point. Returns the first point that the worker has not
  /// passed, or the stopping point.
  StopPoint pause() {
    paused_ = true;
    return stop_.value_or(unbegun_);
  }
  void stop_at(StopPoint point) { stop_ = point; }

 private:
  StopPoint unbegun_{0, 0};  ///< the first point that has not been passed
  bool paused_ = false;
  std::optional<StopPoint> stop_;
};

/// The coordinator's side: one vote of all workers.
class StopVote {
 public:
  /// `own_steps`: workers do not wait for each other (ssp, asp), and each ends before its own next step.
  StopVote(std::set<Peer> workers, bool own_steps) : open_(std::move(workers)), own_steps_(own_steps) {}

  void answer(Peer worker, StopPoint point) {
    if (open_.erase(worker) > 0) answers_[worker] = point;
  }
  bool complete() const { return open_.empty(); }
  /// The point at which each worker stops. REQUIRES: complete.
  std::map<Peer, StopPoint> result() const {
    std::map<Peer, StopPoint> points = answers_;
    StopPoint last{0, 0};
    for (const auto& [worker, point] : answers_) last = std::max(last, point);
    if (!own_steps_)
      for (auto& [worker, point] : points) point = last;
    return points;
  }

 private:
  std::set<Peer> open_;  ///< workers that have not answered yet
  bool own_steps_;
  std::map<Peer, StopPoint> answers_;
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
