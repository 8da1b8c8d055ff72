#include <algorithm>

#include <psring/bench/cost/timed_walk.h>

namespace psring::bench {

using worker::Pass;

TimedWalk::TimedWalk(const TimedJob& job, TimedExchange& exchange, double factor, double more_s)
    : job_(job), exchange_(exchange), tensor_(tensor_group(job_)), factor_(factor), more_s_(more_s) {}

Moments TimedWalk::step(Moments now) {
  begin_step();
  for (std::size_t micro = 0; micro < job_.work.micro_batches; ++micro)
    now = backward(micro + 1 == job_.work.micro_batches, forward(now));
  return finish(now);
}

Moments TimedWalk::forward(Moments now) {
  for (std::size_t layer = 0; layer < job_.work.layers.size(); ++layer) now = forward_layer(layer, now);
  return now;
}

Moments TimedWalk::backward(bool last_micro, Moments now) {
  now = sum(job_.work.loss_sums, now);
  for (std::size_t layer = job_.work.layers.size(); layer-- > job_.work.first_trained_layer;)
    now = backward_layer(layer, last_micro, now);
  return now;
}

void TimedWalk::hand_over_shared(const Moments& now) {
  for (std::size_t unit = job_.work.layout.units.size(); unit-- > 0;)
    if (is_shared(unit)) exchange_.ready(unit, true, now);
}

bool TimedWalk::is_shared(std::size_t unit) const {
  return std::ranges::any_of(job_.work.shared, [&](const SharedGradient& shared) { return shared.unit == unit; });
}

Moments TimedWalk::sum(std::span<const double> vectors, Moments now) {
  if (tensor_.size() == 1) return now;
  for (const double bytes : vectors)
    now = later(now, job_.stations.end_of(job_.stations.submit(now, tensor_.all_reduce(bytes)), now));
  return now;
}

Moments TimedWalk::forward_layer(std::size_t layer, Moments now) {
  const Workload& work = job_.work;
  const std::size_t unit = work.layers[layer].unit;
  const bool has_unit = unit != worker::kNoUnit;
  if (has_unit && work.unit_layers[unit].begin == layer) now = exchange_.acquire(unit, Pass::forward, now);
  now += work.layers[layer].forward_s * factor_ + more_s_;
  now = sum(work.layers[layer].forward_sums, now);
  if (has_unit && work.unit_layers[unit].end == layer + 1) exchange_.release(unit, Pass::forward);
  return now;
}

Moments TimedWalk::backward_layer(std::size_t layer, bool last_micro, Moments now) {
  const Workload& work = job_.work;
  const std::size_t unit = work.layers[layer].unit;
  const bool has_unit = unit != worker::kNoUnit;
  const Range layers = has_unit ? work.backward_layers[unit] : Range{};
  if (has_unit && !layers.empty() && layers.end == layer + 1) {
    now = exchange_.acquire(unit, Pass::backward, now);
    if (work.layout.units[unit].trained) now = exchange_.open(unit, now);
  }
  now += work.layers[layer].backward_s * factor_ + more_s_;
  now = sum(work.layers[layer].backward_sums, now);
  if (has_unit && !layers.empty() && layers.begin == layer) exchange_.release(unit, Pass::backward);
  if (has_unit && work.layout.units[unit].trained && work.unit_layers[unit].begin == layer &&
      !(last_micro && is_shared(unit)))
    exchange_.ready(unit, last_micro, now);
  return now;
}

}  // namespace psring::bench
