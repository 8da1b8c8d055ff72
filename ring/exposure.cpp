#include <algorithm>

#include <psring/ring/exposure.h>

namespace psring::ring {

double exposed_seconds(const net::LinkSpec& link, std::span<const Departure> departures) {
  double left = departures.empty() ? 0 : departures.front().ready_s;
  double complete = 0;
  for (const Departure& each : departures) {
    left = std::max(left, each.ready_s) + 8 * static_cast<double>(each.bytes) / link.bits_per_second;
    complete = std::max(complete, left + static_cast<double>(each.latencies) * seconds(link.delay));
  }
  return complete;
}

Exposure::Exposure(const std::string& link, bool one_by_one, const Clock& clock)
    : link_(link.empty() ? std::nullopt : std::optional(net::parse_link(link))),
      one_by_one_(one_by_one),
      clock_(clock) {}

void Exposure::launched(const Cost& cost) {
  if (!link_) return;
  departures_.push_back({0, std::max(cost.sent, cost.received), cost.latencies});
  moments_.push_back(clock_.now());
}

void Exposure::end_step(Moment backward_ended) {
  if (!link_ || departures_.empty()) return;
  for (std::size_t i = 0; i < departures_.size(); ++i)
    departures_[i].ready_s = std::min(0.0, seconds(moments_[i] - backward_ended));
  if (one_by_one_) {
    for (const Departure& each : departures_) total_ += exposed_seconds(*link_, std::span(&each, 1));
  } else {
    total_ += exposed_seconds(*link_, departures_);
  }
  ++steps_;
  moments_.clear();
}

std::optional<double> Exposure::of_a_step() const {
  if (steps_ == 0) return std::nullopt;
  return total_ / static_cast<double>(steps_);
}

}  // namespace psring::ring
