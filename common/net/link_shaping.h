#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/net/channel.h>

namespace psring::net {

/// The network link of a process, as if the process were a separate host.
struct LinkSpec {
  double bits_per_second = 0;  ///< in each direction, full duplex
  Nanoseconds delay{0};        ///< one-way
};

/// Parses RATE[,DELAY]: "1gbit,5ms", "100mbit", "2.5Gbit,200us", ignoring case; a gbit is 10^9 bits per second. Throws
/// usage, naming --link.
LinkSpec parse_link(const std::string& text);

/// Returns a text such as "100 Mbit/s" or "1 Gbit/s, 5 ms".
std::string to_string(const LinkSpec& link);

/// Returns the number of bytes that a sender with priorities should have in flight to each peer: as many as occupy the
/// link for 10 ms, between 64 KiB and kWindowBytes. A frame in the window can no longer be overtaken by more urgent
/// frames.
std::size_t window_bytes(const LinkSpec& link);

/// Simulates a process's network card, shared by all its links: egress and ingress each carry one frame after another.
/// The sender hands a frame over when the egress starts to carry it. The receiver's ingress starts to carry the frame
/// after the link's delay, or when the frame before it is complete; the frame has arrived when the ingress has carried
/// it. Therefore a single flow gets the link's full rate, n flows into one process share its ingress, and the two
/// directions are independent.
/// Works on times only: no clock, no waiting. Safe for use from several threads.
class LinkShaper {
 public:
  explicit LinkShaper(const LinkSpec& link) : link_(link) {}

  const LinkSpec& link() const { return link_; }
  /// Returns the time that the link needs for `bytes`.
  Nanoseconds time_of(std::size_t bytes) const;
  /// Returns when a frame that is ready at `now` begins to leave, and reserves the egress until it has left.
  Moment depart(std::size_t bytes, Moment now);
  /// Returns when a frame that was handed over at `now` has arrived, and reserves the ingress until then.
  Moment arrive(std::size_t bytes, Moment now);

 private:
  const LinkSpec link_;
  Mutex mutex_;
  Moment egress_free_ PSRING_GUARDED_BY(mutex_) = Moment::min();
  Moment ingress_free_ PSRING_GUARDED_BY(mutex_) = Moment::min();
};

/// Wraps a channel so that its frames, payload and framing, take as long as on the shaped link; handshakes are not
/// shaped. If both ends of a link use the same spec, they behave like two hosts on one switch. A separate thread moves
/// the frames while the caller computes. Frames that wait for the egress count as in flight, and `window_bytes` bounds
/// them; arrived frames wait in memory until their time. Payloads are not placed. The destructor hands over all waiting
/// frames at once.
std::unique_ptr<Channel> make_shaped_channel(std::unique_ptr<Channel> inner, std::shared_ptr<LinkShaper> shaper);

}  // namespace psring::net
