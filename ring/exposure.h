#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/net/link_shaping.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// An all-reduce on its way through a link.
struct Departure {
  double ready_s = 0;       ///< when it could begin, from the end of backward on: mostly negative
  std::uint64_t bytes = 0;  ///< in the direction that carries more
  std::size_t latencies = 0;
};

/// Returns the seconds from the end of backward until all departures are complete. One network card carries the
/// departures one after the other; the next departure begins while the last message of the previous one is still in
/// flight:
///   left[k] = max(ready[k], left[k - 1]) + bytes[k] / rate;  complete[k] = left[k] + latencies[k] * delay.
double exposed_seconds(const net::LinkSpec& link, std::span<const Departure> departures);

/// Predicts the exposed communication of a strategy's steps on a shaped link, from the times its all-reduces began.
class Exposure {
 public:
  /// `link`: as --link says; "": nothing is predicted. `one_by_one`: an all-reduce begins when the one before is
  /// complete.
  Exposure(const std::string& link, bool one_by_one, const Clock& clock);

  void begin_step() { departures_.clear(); }
  void launched(const Cost& cost);
  /// Call after a step's last launch. `backward_ended`: when its backward pass ended.
  void end_step(Moment backward_ended);
  /// Mean over the steps.
  std::optional<double> of_a_step() const;

 private:
  const std::optional<net::LinkSpec> link_;
  const bool one_by_one_;
  const Clock& clock_;
  std::vector<Departure> departures_;
  std::vector<Moment> moments_;  ///< of their launches
  double total_ = 0;
  std::size_t steps_ = 0;
};

}  // namespace psring::ring
