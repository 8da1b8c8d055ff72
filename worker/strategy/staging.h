#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include <psring/common/device/copy_queue.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Between a device and the servers: a gradient, or what a codec made of it there, is copied to the host while backward
/// goes on, and pushed from there once it is there; values are copied to the device as soon as they have come, in the
/// order of the units, and what computes with them is queued behind that. Where servers share the host's memory, they
/// read and write the very bytes that are copied. The host's copies are UnitBuffers::staged_parameters and
/// staged_gradients, and of what a codec made this one's own.
class Staging {
 public:
  enum class Values : std::uint8_t { parameters, gradients };

  /// REQUIRES: Context::stages(), and an arena; the context outlives it.
  explicit Staging(const Context& context);

  // As PsClient's: what is pushed is `gradient`, or the compressor's bytes of it. None of them waits.
  void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro);
  void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into, Values values);
  void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up);

  /// On return the unit's values are there, in at least this version, for all that the device's queue gets from then
  /// on.
  void wait(UnitId unit, std::uint64_t version);
  /// On return its gradient has left, and the servers have confirmed it.
  void wait_acknowledged(UnitId unit);
  /// On return the unit's values have been copied to the device.
  void wait_copied(UnitId unit);
  /// Goes on with what can be gone on with.
  void progress();

 private:
  struct Departure {
    UnitId unit;
    CopyQueue::Mark copied;
    std::function<void()> send;
  };
  struct Arrival {
    std::uint64_t version;
    ConstElements from;
    Elements into;
  };

  UnitBuffers& buffers(UnitId unit) const { return context_.units[unit]; }
  Elements place_of(UnitId unit, ConstElements gradient);
  void depart(UnitId unit, ConstElements gradient, const std::function<void(ConstElements)>& send);
  bool departs(UnitId unit) const;
  void send_first();
  void send_those_that_are_copied();
  void land(UnitId unit);
  void land_those_that_came();

  const Context& context_;
  Buffer encoded_;                            ///< as the compressor has it
  const std::shared_ptr<void> codes_pinned_;  ///< as pinned_; null: they lie in the arena
  const std::shared_ptr<void> pinned_;        ///< shared as Device::pin returns it
  const std::unique_ptr<CopyQueue> to_host_;
  const std::unique_ptr<CopyQueue> to_device_;
  std::deque<Departure> departures_;
  std::map<UnitId, Arrival> arrivals_;        ///< that are on their way
  std::map<UnitId, CopyQueue::Mark> copied_;  ///< the newest of each unit
};

}  // namespace psring::worker
