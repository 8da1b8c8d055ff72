#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/device/device.h>
#include <psring/worker/compressor.h>
#include <psring/worker/ps_client.h>
#include <psring/worker/strategy/staging.h>

namespace psring::worker {
namespace {

/// How long a look at what a device has come to may be late: a copy of 64 KiB takes as long.
constexpr std::chrono::microseconds kPause{5};

Buffer room_for_codes(const Context& context) {
  const std::size_t bytes = context.compressor != nullptr ? context.compressor->encoded_bytes() : 0;
  return {bytes, Category::staging, context.memory, context.arena_for_codes(bytes)};
}

}  // namespace

Staging::Staging(const Context& context)
    : context_(context),
      encoded_(room_for_codes(context)),
      codes_pinned_(encoded_.size_bytes() > 0 && !context.arena->contains(encoded_.address())
                        ? context.device->pin(encoded_.bytes())
                        : nullptr),
      pinned_(context.device->pin({context.arena->base(), context.arena->capacity()})),
      to_host_(context.device->make_copy_queue()),
      to_device_(context.device->make_copy_queue()) {
  if (pinned_ == nullptr)
    fmt::print("worker {}: its driver does not pin shared memory: copies between it and the GPU are slow\n",
               context.rank);
}

Elements Staging::place_of(UnitId unit, ConstElements gradient) {
  if (context_.compressor == nullptr) return buffers(unit).staged_gradients;
  const auto offset = static_cast<std::size_t>(gradient.data() - context_.compressor->encoded().data());
  return encoded_.elements(DType::u8).subspan(offset, gradient.size());
}

/// Of a gradient that is complete once the device's queue has come to where it ends now.
void Staging::depart(UnitId unit, ConstElements gradient, const std::function<void(ConstElements)>& send) {
  const Elements staged = place_of(unit, gradient);
  to_host_->begin_after_device();
  to_host_->copy(gradient.data(), staged.data(), gradient.size_bytes());
  departures_.push_back({unit, to_host_->mark(), [send, staged] { send(staged); }});
  progress();
}

void Staging::push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) {
  depart(unit, gradient, [=, this](ConstElements staged) { context_.client->push(unit, step, staged, micro); });
}

/// An answer comes after the unit's backward pass, and its buffers are not read again before that was waited for.
void Staging::push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into, Values values) {
  const UnitBuffers& of = buffers(unit);
  const Elements answer = values == Values::parameters ? of.staged_parameters : of.staged_gradients;
  depart(unit, gradient, [=, this](ConstElements staged) {
    arrivals_.insert_or_assign(unit, Arrival{step + 1, answer, into});
    context_.client->push_pull(unit, step, staged, answer);
  });
}

/// Into memory that the device's queue may still be at. What the unit has on its way to servers leaves first.
void Staging::pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) {
  auto ask = [=, this, staged = buffers(unit).staged_parameters] {
    to_device_->begin_after_device();
    arrivals_.insert_or_assign(unit, Arrival{version, staged, into});
    context_.client->pull(unit, version, staged, start_up);
  };
  const auto last = std::find_if(departures_.rbegin(), departures_.rend(),
                                 [unit](const Departure& each) { return each.unit == unit; });
  if (last == departures_.rend())
    ask();
  else
    last->send = [push = std::move(last->send), ask = std::move(ask)] {
      push();
      ask();
    };
  progress();
}

void Staging::wait(UnitId unit, std::uint64_t version) {
  PsClient& client = *context_.client;
  const auto copied = [&] { return !copied_.contains(unit) || to_device_->reached(copied_.at(unit)); };
  if (client.has(unit, version) && !departs(unit) && !arrivals_.contains(unit) && copied()) return;
  {
    const Device::Stall stall(*context_.device);
    while (departs(unit)) send_first();  // what it is answered with is asked for
    while (!client.has(unit, version))
      if (departures_.empty())
        client.wait(unit, version);
      else
        send_first();
    if (arrivals_.contains(unit)) land(unit);
    if (copied_.contains(unit)) to_device_->hold_device(copied_.at(unit));
  }
  land_those_that_came();
}

bool Staging::departs(UnitId unit) const {
  return std::ranges::any_of(departures_, [unit](const Departure& each) { return each.unit == unit; });
}

void Staging::wait_acknowledged(UnitId unit) {
  while (departs(unit)) send_first();
  context_.client->wait_acknowledged(unit);
}

void Staging::wait_copied(UnitId unit) {
  check(!arrivals_.contains(unit), "values that were never waited for");
  while (copied_.contains(unit) && !to_device_->reached(copied_.at(unit))) std::this_thread::sleep_for(kPause);
}

void Staging::progress() {
  send_those_that_are_copied();
  context_.client->progress();
  land_those_that_came();
}

/// They are copied in the order in which they left.
void Staging::send_first() {
  while (!to_host_->reached(departures_.front().copied)) {
    context_.client->progress();
    land_those_that_came();
    std::this_thread::sleep_for(kPause);
  }
  const Departure first = std::move(departures_.front());
  departures_.pop_front();
  first.send();
}

void Staging::send_those_that_are_copied() {
  while (!departures_.empty() && to_host_->reached(departures_.front().copied)) send_first();
}

void Staging::land(UnitId unit) {
  const Arrival arrival = arrivals_.at(unit);
  arrivals_.erase(unit);
  to_device_->copy(arrival.from.data(), arrival.into.data(), arrival.from.size_bytes());
  copied_.insert_or_assign(unit, to_device_->mark());
}

void Staging::land_those_that_came() {
  for (auto next = arrivals_.begin(); next != arrivals_.end();) {
    const auto [unit, arrival] = *next++;
    if (context_.client->has(unit, arrival.version)) land(unit);
  }
}

}  // namespace psring::worker
