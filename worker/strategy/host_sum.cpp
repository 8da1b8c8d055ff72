#include <algorithm>
#include <utility>

#include <psring/worker/strategy/host_sum.h>

namespace psring::worker {

ring::Parts HostSum::all_to_first(std::size_t elements) const {
  ring::Parts parts(context_.host->size());
  parts[0] = {{0, elements}};
  return parts;
}

void HostSum::add(UnitId unit, Elements gradient, std::function<void()> then) {
  if (context_.host == nullptr) return then();
  flights_.push_back({unit,
                      context_.host->reduce_scatter(gradient, all_to_first(gradient.size()), ring::ReduceOp::Kind::sum),
                      std::move(then)});
  while (!flights_.empty() && flights_.front().work.done()) land_first();
}

void HostSum::land_first() {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const Moment start = context_.clock.now();
  flight.work.wait();
  waited_ += context_.clock.now() - start;
  flight.then();
}

void HostSum::wait(UnitId unit) {
  while (std::any_of(flights_.begin(), flights_.end(), [&](const Flight& flight) { return flight.unit == unit; }))
    land_first();
}

void HostSum::wait_all() {
  while (!flights_.empty()) land_first();
}

void HostSum::quiesce() const {
  if (context_.host == nullptr) return;
  context_.host->barrier().wait();
  context_.host->account();
}

void HostSum::predict(Prediction& sum) const {
  if (context_.host == nullptr) return;
  for (const UnitId unit : context_.layout.trained()) {
    const std::size_t elements = context_.layout.units[unit].elements;
    const ring::Cost moved = context_.host->predict(ring::Collective::reduce_scatter, elements,
                                                    {context_.layout.gradient_type}, all_to_first(elements));
    *sum.worker_sends += context_.layout.pushes * moved.sent;
    *sum.worker_receives += context_.layout.pushes * moved.received;
  }
  // Servers add hosts' sums, and narrow ones are rounded once more. That is rank order where only the first host has
  // several workers, the first ones.
  const std::span<const std::size_t> pushers = context_.pushers;
  sum.same_bits = pushers.size() == context_.workers || context_.layout.gradient_type == DType::f32;
  for (std::size_t host = 1; host < pushers.size(); ++host)
    sum.same_bits = sum.same_bits && pushers[host] == context_.workers - pushers.size() + host;
}

}  // namespace psring::worker
