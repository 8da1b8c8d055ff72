#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/channel.h>

namespace psring::net {

/// A network link, as a process would have it if it were a host of its own.
struct LinkSpec {
  double bits_per_second = 0;  ///< each way, at the same time
  Nanoseconds delay{0};        ///< one-way
};

/// RATE[,DELAY]: "1gbit,5ms", "100mbit", "2.5Gbit,200us", in any case; a gbit is 10^9 bits a second. Throws usage,
/// naming
/// --link.
LinkSpec parse_link(const std::string& text);

/// "100 Mbit/s", "1 Gbit/s, 5 ms"
std::string to_string(const LinkSpec& link);

/// One network card of one process, shared by all that it talks to: its egress and its ingress carry one frame after
/// the other. A frame that begins to leave at t is handed over then; it has wholly arrived when the receiver's ingress
/// has carried it, which begins after the delay, or when the frame before it is through. So one flow alone runs at
/// the link's rate, n flows into one process share its ingress, and the two directions do not touch each other.
/// Times in, times out: no clock, no waiting. From any thread.
class LinkShaper {
 public:
  explicit LinkShaper(const LinkSpec& link) : link_(link) {}

  const LinkSpec& link() const { return link_; }
  /// How long so many bytes take.
  Nanoseconds time_of(std::size_t bytes) const;
  /// When a frame that is ready at `now` begins to leave; keeps the egress busy until it has left.
  Moment depart(std::size_t bytes, Moment now);
  /// When a frame that the other side handed over at `now` has wholly arrived; keeps the ingress busy until then.
  Moment arrive(std::size_t bytes, Moment now);

 private:
  const LinkSpec link_;
  std::mutex mutex_;
  Moment egress_free_ = Moment::min();   ///< guarded by mutex_
  Moment ingress_free_ = Moment::min();  ///< guarded by mutex_
};

/// The channel's frames as the shaped link would carry them, payload and framing; handshakes are not shaped. Ends of a
/// link that both are shaped by the same spec behave like two hosts on one switch. A thread of its own keeps the card
/// going while the caller computes. Frames that wait for the egress are in flight, and bounded by `window_bytes`;
/// what has arrived waits in memory until its time. Payloads are not placed. The destructor hands over at once what
/// still waits.
std::unique_ptr<Channel> make_shaped_channel(std::unique_ptr<Channel> inner, std::shared_ptr<LinkShaper> shaper);

}  // namespace psring::net
