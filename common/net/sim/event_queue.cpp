#include <tuple>
#include <utility>

#include <psring/common/net/sim/event_queue.h>

namespace psring::net {

bool EventQueue::Later::operator()(const SimulatedEvent& a, const SimulatedEvent& b) const {
  return std::tie(a.time, a.tie, a.order) > std::tie(b.time, b.tie, b.order);
}

void EventQueue::add(SimulatedEvent event) {
  event.tie = draws_.bits();
  event.order = order_++;
  events_.push(std::move(event));
}

SimulatedEvent EventQueue::take() {
  SimulatedEvent event = events_.top();
  events_.pop();
  return event;
}

}  // namespace psring::net
