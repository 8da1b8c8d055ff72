#include <algorithm>
#include <utility>

#include <psring/worker/exchange/servers/host_sum.h>

namespace psring::worker {

ring::Parts HostSum::all_to_first(std::size_t elements) const {
  ring::Parts parts(world_.host->size());
  parts[0] = {{0, elements}};
  return parts;
}

void HostSum::add(UnitId unit, Elements gradient, std::function<void()> then) {
  if (world_.host == nullptr) return then();
  flights_.push_back({unit,
                      world_.host->reduce_scatter(gradient, all_to_first(gradient.size()), ring::ReduceOp::Kind::sum),
                      std::move(then)});
  while (!flights_.empty() && flights_.front().work.done()) land_first();
}

void HostSum::land_first() {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const Moment start = world_.clock.now();
  flight.work.wait();
  waited_ += world_.clock.now() - start;
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
  if (world_.host == nullptr) return;
  world_.host->barrier().wait();
  world_.host->account();
}

void HostSum::predict(Prediction& sum) const {
  if (world_.host == nullptr) return;
  for (const UnitId unit : plan_.layout.trained()) {
    const std::size_t elements = plan_.layout.units[unit].elements;
    const ring::Cost moved = world_.host->predict(ring::Collective::reduce_scatter, elements,
                                                  {plan_.layout.gradient_type}, all_to_first(elements));
    *sum.worker_sends += plan_.layout.pushes * moved.sent;
    *sum.worker_receives += plan_.layout.pushes * moved.received;
  }
  // Servers add the hosts' sums; narrow ones are rounded once more. This is rank order if only the first host has
  // several workers, and these are the first ranks.
  const std::span<const std::size_t> pushers = plan_.place.pushers;
  sum.same_bits = pushers.size() == plan_.workers || plan_.layout.gradient_type == DType::f32;
  for (std::size_t host = 1; host < pushers.size(); ++host)
    sum.same_bits = sum.same_bits && pushers[host] == plan_.workers - pushers.size() + host;
}

}  // namespace psring::worker
