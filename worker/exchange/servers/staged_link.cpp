#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/copy_queue.h>
#include <psring/common/device/device.h>
#include <psring/worker/exchange/servers/server_link.h>
#include <psring/worker/servers/ps_client.h>
#include <psring/worker/state/compressor.h>

namespace psring::worker {
namespace {

/// How late the host may notice that a copy is done: as long as a copy of 64 KiB takes.
constexpr std::chrono::microseconds kPause{5};

Buffer make_code_staging(const Plan& plan, const World& world) {
  const std::size_t bytes = world.compressor != nullptr ? world.compressor->encoded_bytes() : 0;
  return {bytes, Category::staging, world.memory, arena_for_codes(plan, world, bytes)};
}

class StagedLink final : public ServerLink {
 public:
  StagedLink(const Plan& plan, const World& world);

  void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) override {
    depart(unit, gradient, [=, this](ConstElements staged) { world_.client->push(unit, step, staged, micro); });
  }

  /// The answer comes after the unit's backward pass, and no code reads the unit's buffers before waiting for it.
  void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into) override {
    const UnitBuffers& of = buffers(unit);
    const Elements answer = into.data() == of.gradients.data() ? of.staged_gradients : of.staged_parameters;
    depart(unit, gradient, [=, this](ConstElements staged) {
      arrivals_.insert_or_assign(unit, Arrival{step + 1, answer, into});
      world_.client->push_pull(unit, step, staged, answer);
    });
  }

  /// The device's queue may still read the memory: copies begin behind it. The unit's gradient leaves first.
  void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) override {
    auto ask = [=, this, staged = buffers(unit).staged_parameters] {
      to_device_->begin_after_device();
      arrivals_.insert_or_assign(unit, Arrival{version, staged, into});
      world_.client->pull(unit, version, staged, start_up);
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

  /// On return the values are there for all that the device's queue gets from then on.
  void wait(UnitId unit, std::uint64_t version) override {
    PsClient& client = *world_.client;
    const auto copied = [&] { return !copied_.contains(unit) || to_device_->reached(copied_.at(unit)); };
    if (client.has(unit, version) && !departs(unit) && !arrivals_.contains(unit) && copied()) return;
    {
      const Device::Stall stall(*world_.device);
      while (departs(unit)) send_first();  // the push asks for the values
      while (!client.has(unit, version))
        if (departures_.empty())
          client.wait(unit, version);
        else
          send_first();
      if (arrivals_.contains(unit)) copy_arrival(unit);
      if (copied_.contains(unit)) to_device_->hold_device(copied_.at(unit));
    }
    poll_arrivals();
  }

  void wait_acknowledged(UnitId unit) override {
    while (departs(unit)) send_first();
    world_.client->wait_acknowledged(unit);
  }

  void wait_copied(UnitId unit) override {
    check(!arrivals_.contains(unit), "values that were never waited for");
    while (copied_.contains(unit) && !to_device_->reached(copied_.at(unit))) std::this_thread::sleep_for(kPause);
  }

  void progress() override {
    send_copied();
    world_.client->progress();
    poll_arrivals();
  }

  Nanoseconds waited() const override { return world_.device->stalled(); }

 private:
  /// A gradient that is being copied to the host, and leaves from there.
  struct Departure {
    UnitId unit;
    CopyQueue::Mark copied;
    std::function<void()> send;
  };
  /// Values that are on their way to the host.
  struct Arrival {
    std::uint64_t version;
    ConstElements from;
    Elements into;
  };

  UnitBuffers& buffers(UnitId unit) const { return world_.units[unit]; }
  Elements staging_of(UnitId unit, ConstElements gradient) {
    if (world_.compressor == nullptr) return buffers(unit).staged_gradients;
    const auto offset = static_cast<std::size_t>(gradient.data() - world_.compressor->encoded().data());
    return codes_.elements(DType::u8).subspan(offset, gradient.size());
  }

  /// The gradient is complete when the device has done all work that its queue holds now.
  void depart(UnitId unit, ConstElements gradient, const std::function<void(ConstElements)>& send) {
    const Elements staged = staging_of(unit, gradient);
    to_host_->begin_after_device();
    to_host_->copy(gradient.data(), staged.data(), gradient.size_bytes());
    departures_.push_back({unit, to_host_->mark(), [send, staged] { send(staged); }});
    progress();
  }

  bool departs(UnitId unit) const {
    return std::ranges::any_of(departures_, [unit](const Departure& each) { return each.unit == unit; });
  }

  /// Gradients are copied in the order in which they departed.
  void send_first() {
    while (!to_host_->reached(departures_.front().copied)) {
      world_.client->progress();
      poll_arrivals();
      std::this_thread::sleep_for(kPause);
    }
    const Departure first = std::move(departures_.front());
    departures_.pop_front();
    first.send();
  }

  void send_copied() {
    while (!departures_.empty() && to_host_->reached(departures_.front().copied)) send_first();
  }

  void copy_arrival(UnitId unit) {
    const Arrival arrival = arrivals_.at(unit);
    arrivals_.erase(unit);
    to_device_->copy(arrival.from.data(), arrival.into.data(), arrival.from.size_bytes());
    copied_.insert_or_assign(unit, to_device_->mark());
  }

  void poll_arrivals() {
    for (auto next = arrivals_.begin(); next != arrivals_.end();) {
      const auto [unit, arrival] = *next++;
      if (world_.client->has(unit, arrival.version)) copy_arrival(unit);
    }
  }

  const World& world_;
  Buffer codes_;                              ///< laid out as the compressor's own
  const std::shared_ptr<void> codes_pinned_;  ///< shared as Device::pin returns it; null: the codes lie in the arena
  const std::shared_ptr<void> pinned_;        ///< the arena
  const std::unique_ptr<CopyQueue> to_host_;
  const std::unique_ptr<CopyQueue> to_device_;
  std::deque<Departure> departures_;
  std::map<UnitId, Arrival> arrivals_;
  std::map<UnitId, CopyQueue::Mark> copied_;  ///< the newest copy of each unit to the device
};

StagedLink::StagedLink(const Plan& plan, const World& world)
    : world_(world),
      codes_(make_code_staging(plan, world)),
      codes_pinned_(codes_.size_bytes() > 0 && !world.arena->contains(codes_.address())
                        ? world.device->pin(codes_.bytes())
                        : nullptr),
      pinned_(world.device->pin({world.arena->base(), world.arena->capacity()})),
      to_host_(world.device->make_copy_queue()),
      to_device_(world.device->make_copy_queue()) {
  if (pinned_ == nullptr)
    out::print("worker {}: its driver does not pin shared memory: copies between it and the GPU are slow\n",
               plan.place.rank.value);
}

}  // namespace

std::unique_ptr<ServerLink> make_staged_link(const Plan& plan, const World& world) {
  return std::make_unique<StagedLink>(plan, world);
}

}  // namespace psring::worker
