#include <psring/common/device/device.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

Workers::Workers(const Plan& plan, const World& world) : plan_(plan), world_(world), groups_(plan, world) {}

/// The barrier in quiesce() lets all workers begin the first step together. Without it rank 0 would be ahead by as long
/// as the values take, and hosts that begin out of step may stay so.
void Workers::broadcast(Elements values) {
  group().broadcast(values, 0).wait();
  quiesce();
}

void Workers::share_buffers() {
  if (!world_.buffers.empty()) group().broadcast(world_.buffers, 0).wait();
}

/// The barrier comes before accounting: bytes that others read from this process count once they have been read.
void Workers::quiesce() {
  share_buffers();
  group().barrier().wait();
  account();
}

void Workers::account() {
  group().account();
  groups_.account();
}

void Workers::wait(ring::Work& work, Events::Source source) {
  const Moment start = world_.clock.now();
  const bool is_done = work.done();
  const Moment since = world_.clock.now();
  waited_ += since - start;  // to ask makes progress; the event begins after the events of that progress
  if (is_done) {
    world_.events.need_not_wait({.name = "wait"}, source);
    return;
  }
  Activity activity{.name = "wait"};
  if (world_.events.active()) activity.peer = {"worker", static_cast<std::uint32_t>(work.awaited().front())};
  const Events::Wait wait(world_.events, activity, since, waited_, source);
  work.wait();
}

Nanoseconds Workers::waited() const { return world_.device != nullptr ? world_.device->stalled() : waited_; }

}  // namespace psring::worker
