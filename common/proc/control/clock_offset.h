#pragma once

#include <psring/common/base/clock.h>

namespace psring::net {

/// Estimates the offset between this process's clock and the coordinator's, from heartbeats and their answers (D. L.
/// Mills, "Internet Time Synchronization: the Network Time Protocol", 1991): the answer with the shortest round trip
/// decides, and is taken to come from the middle of the round trip. So the error is at most half of the round trip.
///
/// An offset that is no larger than this error is taken as zero. Processes of one host read one clock: with a measured
/// offset of some microseconds their traces would show messages that arrive before they leave.
class ClockOffset {
 public:
  /// A heartbeat left at `sent` and its answer arrived at `received`, both on this process's clock; `answered` is the
  /// time of the answer on the coordinator's clock.
  void add(Nanoseconds sent, Nanoseconds answered, Nanoseconds received) {
    const Nanoseconds round_trip = received - sent;
    if (round_trip >= best_round_trip_) return;
    best_round_trip_ = round_trip;
    const bool may_be_zero = sent <= answered && answered <= received;
    offset_ = may_be_zero ? Nanoseconds{0} : answered - (sent + round_trip / 2);
  }
  /// The offset to add to this process's clock to get the coordinator's; 0 before the first answer.
  Nanoseconds value() const { return offset_; }

 private:
  Nanoseconds offset_{0};
  Nanoseconds best_round_trip_ = Nanoseconds::max();
};

}  // namespace psring::net
