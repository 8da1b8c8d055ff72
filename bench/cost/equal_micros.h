#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <psring/bench/cost/stations.h>
#include <psring/bench/cost/step_model.h>

namespace psring::bench {

/// Finds out when the micro-batches of a worker's step are all alike, so that the others need not be played: when three
/// of them in turn took equally long, and left the queues of all stations equally long. What is left out is counted.
class EqualMicros {
 public:
  static constexpr std::size_t kStations = static_cast<std::size_t>(StepStation::count);

  explicit EqualMicros(const Stations& stations) : stations_(stations) {}

  void begin_step(const Moments& now) {
    played_ = 0;
    last_ = state_at(now);
  }
  /// A micro-batch has ended. `left`: micro-batches that the step may leave out. Returns how many it leaves out.
  std::size_t end_micro(const Moments& now, std::size_t left) {
    const State state = state_at(now);
    Micro micro{.seconds = now.last() - last_.now.last(), .now = now};
    for (std::size_t station = 0; station < kStations; ++station) {
      micro.busy[station] = state.busy[station] - last_.busy[station];
      micro.queued[station] = state.queued[station];
    }
    played_ = played_ > 0 && alike(micro, micro_) ? played_ + 1 : 1;
    micro_ = micro;
    last_ = state;
    constexpr std::size_t kEqual = 3;
    if (played_ < kEqual || left == 0) return 0;
    seconds_ += static_cast<double>(left) * micro.seconds;
    for (std::size_t station = 0; station < kStations; ++station)
      busy_[station] += static_cast<double>(left) * micro.busy[station];
    return left;
  }

  /// The time of the micro-batches that were left out so far, and that of a station in them.
  double seconds() const { return seconds_; }
  double busy(std::size_t station) const { return busy_[station]; }

 private:
  using ByStation = std::array<double, kStations>;
  struct State {
    Moments now;
    ByStation busy{};
    ByStation queued{};  ///< time until the station is free
  };
  struct Micro {
    double seconds = 0;
    Moments now;
    ByStation busy{};
    ByStation queued{};
  };

  State state_at(const Moments& now) const {
    State state{.now = now};
    for (std::size_t station = 0; station < stations_.count(); ++station) {
      state.busy[station] = stations_.busy(station);
      state.queued[station] = std::max(0.0, stations_.free_at(station) - now.last());
    }
    return state;
  }
  static bool alike(const Micro& a, const Micro& b) {
    const double most = 1e-9 * b.seconds;
    bool all = std::abs(a.seconds - b.seconds) <= most;
    for (std::size_t lane = 0; lane < a.now.lanes(); ++lane)
      all = all && std::abs((a.now.last() - a.now[lane]) - (b.now.last() - b.now[lane])) <= most;
    for (std::size_t station = 0; station < kStations; ++station)
      all = all && std::abs(a.busy[station] - b.busy[station]) <= most &&
            std::abs(a.queued[station] - b.queued[station]) <= most;
    return all;
  }

  const Stations& stations_;
  State last_;
  Micro micro_;
  std::size_t played_ = 0;  ///< micro-batches in turn that were alike
  double seconds_ = 0;
  ByStation busy_{};
};

}  // namespace psring::bench
