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

namespace psring::worker {

/// An all-reduce on its way through a link.
struct Departure {
  double ready_s = 0;       ///< when it could begin, from the end of backward on: mostly negative
  std::uint64_t bytes = 0;  ///< that the card carries, the busier way
  std::size_t latencies = 0;
};

/// Seconds after the end of backward until all of them are complete. One card carries one after the other, a later one
/// while an earlier one's last message is still under way:
///   left[k] = max(ready[k], left[k - 1]) + bytes[k] / rate;  complete[k] = left[k] + latencies[k] * delay.
double exposed_seconds(const net::LinkSpec& link, std::span<const Departure> departures);

/// The time that a strategy's steps should wait for a shaped link, from when its all-reduces could begin.
class Exposure {
 public:
  /// `link`: as --link says; "": nothing is predicted. `one_by_one`: each begins when the one before is complete.
  Exposure(const std::string& link, bool one_by_one, const Clock& clock);

  void begin_step() { departures_.clear(); }
  void launched(const ring::Cost& cost);
  /// After the last launch of a step, whose backward ended then.
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

}  // namespace psring::worker
