#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One end of a link over which frames may be lost, doubled, overtaken or changed, and on which they arrive all the
/// same: each once, in order, as they were sent. A pure state machine: frames and time in, frames out.
///
/// Frames are numbered from 0 each way (`place`). Every frame tells what has arrived the other way: all before `taken`,
/// and single later ones in `later`; where none leaves, a frame `acknowledge`, which has no number, does. At most
/// kWindowFrames, and about `window_bytes`, are on their way; others wait. A frame is sent again once three that were
/// sent after it have arrived; where nothing is heard of any, the oldest is, after a time that follows the measured
/// round trips and doubles each time (V. Jacobson, "Congestion Avoidance and Control", SIGCOMM 1988; round trips of
/// frames that were sent again do not count: P. Karn, C. Partridge, SIGCOMM 1987). What `check` shows to be changed
/// counts as lost.
///
/// A process that was restarted says so by its incarnation: a peer that hears of a newer one begins anew, and drops
/// what was on its way to the old one. `life` says which one a frame is for; a frame for another is answered, so that
/// its sender hears of this one, and dropped. What it carried is for the layers above to send again.
class ReliableLink {
 public:
  static constexpr std::size_t kWindowFrames = 32;  ///< and one, are what `taken` and `later` can tell of

  struct Options {
    std::uint32_t incarnation = 0;                            ///< of this process
    std::uint32_t peer_incarnation = 0;                       ///< as far as is known
    Nanoseconds first_retry = std::chrono::milliseconds(20);  ///< the least time after which a frame is sent again,
    Nanoseconds last_retry = std::chrono::milliseconds(500);  ///< and the longest
    std::size_t window_bytes = kWindowBytes;
  };

  /// A frame to be sent: the inner transport fills in the rest.
  struct Frame {
    enum class Kind : std::uint8_t { first, again, acknowledge };
    Kind kind = Kind::first;
    FrameHeader header;
    std::span<const std::byte> payload;
  };

  /// What came of frames that arrived.
  struct Counts {
    std::uint64_t again = 0;      ///< had arrived before
    std::uint64_t changed = 0;    ///< had a wrong checksum
    std::uint64_t strangers = 0;  ///< were from, or for, another life
  };

  explicit ReliableLink(const Options& options)
      : options_(options), peer_incarnation_(options.peer_incarnation), retry_(options.first_retry) {}

  /// Takes a frame. `holder` keeps the payload as long as it may be sent again.
  void send(const FrameHeader& header, std::span<const std::byte> payload, std::shared_ptr<const void> holder);
  /// Takes what arrived; adds to `delivered` what that makes available.
  void on_frame(Message message, Moment now, std::vector<Message>& delivered);
  /// What is to leave now. `idle`: nothing more has arrived, so that what did is acknowledged. `leaving`: what was sent
  /// has not left yet, so that nobody can have answered.
  void poll(Moment now, bool idle, bool leaving, std::vector<Frame>& out);
  /// When `poll` has something to do though nothing arrives.
  Moment due() const { return timer_; }

  /// Its peer is this incarnation from now on: older ones are forgotten. Without it, the first frame of one says so.
  void meet(std::uint32_t incarnation);
  std::uint32_t peer_incarnation() const { return peer_incarnation_; }
  /// The peer is lost: nothing is sent again.
  void break_off();

  /// Payload of frames that have not been sent once.
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  /// Have all frames arrived, as far as the peer told?
  bool all_arrived() const { return frames_.empty(); }
  const Counts& counts() const { return counts_; }
  /// Once the transport has nothing in flight to the peer: frames that were sent twice, and have arrived, may lie in
  /// its queue until then.
  void release() { retired_.clear(); }

 private:
  struct Sent {
    FrameHeader header;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> holder;
    std::uint64_t order = 0;  ///< among all that was sent, when it was sent last; 0: not yet
    Moment at{};              ///< when that was
    bool again = false;
    bool arrived = false;
  };

  bool is_from_this_life(const FrameHeader& header);
  void take_acknowledgement(const FrameHeader& header, Moment now);
  void arrived(Sent& frame, Moment now);
  void measure(Nanoseconds round_trip);
  void take_numbered(Message message, std::vector<Message>& delivered);
  bool has_room() const;
  void transmit(std::size_t index, Moment now, std::vector<Frame>& out);
  void stamp(FrameHeader& header, std::span<const std::byte> payload) const;
  Nanoseconds patience() const;

  const Options options_;
  std::uint32_t peer_incarnation_;

  // What is sent.
  std::deque<Sent> frames_;  ///< that have not arrived, or wait for one that has not; the first is base_
  std::uint64_t base_ = 0;
  std::size_t sent_ = 0;           ///< of frames_: those that were sent
  std::size_t sent_bytes_ = 0;     ///< their payloads
  std::size_t waiting_bytes_ = 0;  ///< the others'
  std::uint64_t orders_ = 0;
  std::uint64_t newest_arrived_ = 0;  ///< the largest order of what has arrived
  Moment timer_ = kNever;
  unsigned silences_ = 0;  ///< times that the timer went off since something was heard
  Nanoseconds round_trip_{0};
  Nanoseconds deviation_{0};
  Nanoseconds retry_;
  std::vector<std::shared_ptr<const void>> retired_;

  // What arrives.
  std::uint64_t taken_ = 0;
  std::map<std::uint64_t, Message> early_;  ///< by place
  std::size_t early_bytes_ = 0;
  unsigned owed_ = 0;  ///< frames that arrived since one told of them
  Counts counts_;
};

}  // namespace psring::net
