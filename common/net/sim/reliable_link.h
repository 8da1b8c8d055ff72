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

/// One end of a reliable link over a lossy network, which may lose, duplicate, reorder and corrupt frames: each frame
/// is delivered once, in order, and unchanged. A pure state machine: frames and time in, frames out.
///
/// Each direction numbers its frames from 0 (`place`). Every frame acknowledges the other direction: all frames before
/// `taken`, and single later frames in `later`; if no frame leaves, an `acknowledge` frame does, which has no number.
/// At most kWindowFrames frames, and about `window_bytes`, are in flight; other frames wait. A frame is retransmitted
/// once three frames that were sent after it have arrived. If no acknowledgement comes, the oldest frame is
/// retransmitted after a timeout that follows the measured round trips and doubles each time (V. Jacobson, "Congestion
/// Avoidance and Control", SIGCOMM 1988; round trips of retransmitted frames do not count: P. Karn, C. Partridge,
/// SIGCOMM 1987). A frame whose checksum (`check`) is wrong counts as lost.
///
/// The incarnation tells restarts of a process. A peer that hears of a newer incarnation begins anew, and drops its
/// frames to the old one. `life` names the incarnation that a frame is for: a frame for another incarnation is dropped,
/// but answered, so that its sender hears of this incarnation. The layers above send the dropped contents again.
class ReliableLink {
 public:
  /// The most frames in flight. `taken` and `later` can acknowledge this number and one more.
  static constexpr std::size_t kWindowFrames = 32;

  struct Options {
    std::uint32_t incarnation = 0;                            ///< of this process
    std::uint32_t peer_incarnation = 0;                       ///< the last that is known
    Nanoseconds first_retry = std::chrono::milliseconds(20);  ///< the shortest retransmission timeout
    Nanoseconds last_retry = std::chrono::milliseconds(500);  ///< the longest retransmission timeout
    std::size_t window_bytes = kWindowBytes;
  };

  /// A frame to be sent. The inner transport fills in the other fields of the header.
  struct Frame {
    enum class Kind : std::uint8_t { first, again, acknowledge };
    Kind kind = Kind::first;
    FrameHeader header;
    std::span<const std::byte> payload;
  };

  /// Counts of frames that arrived and were dropped.
  struct Counts {
    std::uint64_t again = 0;      ///< frames that had arrived before
    std::uint64_t changed = 0;    ///< frames with a wrong checksum
    std::uint64_t strangers = 0;  ///< frames from, or for, another incarnation
  };

  explicit ReliableLink(const Options& options)
      : options_(options), peer_incarnation_(options.peer_incarnation), retry_(options.first_retry) {}

  /// Queues a frame. `holder` keeps the payload while the frame may be sent again.
  void send(const FrameHeader& header, std::span<const std::byte> payload, std::shared_ptr<const void> holder);
  /// Takes a frame that arrived, and appends to `delivered` the frames that are now in order.
  void on_frame(Message message, Moment now, std::vector<Message>& delivered);
  /// Appends the frames to send now. `idle`: no more frames have arrived, so an acknowledgement is due. `leaving`: some
  /// sent bytes have not left yet, so the peer cannot have answered them.
  void poll(Moment now, bool idle, bool leaving, std::vector<Frame>& out);
  /// The time of the next retransmission: the owner has to call `poll` then.
  Moment due() const { return timer_; }

  /// The peer has this incarnation from now on. Without this call, the first frame of the new incarnation tells.
  void meet(std::uint32_t incarnation);
  std::uint32_t peer_incarnation() const { return peer_incarnation_; }
  /// The peer is lost: no frame is sent again.
  void break_off();

  /// The payload bytes of frames that wait for room in the window.
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  /// Has the peer acknowledged all frames?
  bool all_arrived() const { return frames_.empty(); }
  const Counts& counts() const { return counts_; }
  /// Frees the payloads of acknowledged frames that were retransmitted. The owner calls this when the inner transport
  /// has nothing in flight to the peer: until then its queue may hold a second copy of such a frame.
  void release() { retired_.clear(); }

 private:
  struct Sent {
    FrameHeader header;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> holder;
    std::uint64_t order = 0;  ///< the number of the last transmission, from 1, over all frames; 0: not sent yet
    Moment at{};              ///< the time of the last transmission
    bool again = false;       ///< the last transmission was a retransmission
    bool arrived = false;     ///< the peer has acknowledged the frame
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

  // Sending.
  std::deque<Sent> frames_;           ///< all frames from the first that is not acknowledged, sent or not
  std::uint64_t base_ = 0;            ///< the number of the first of frames_
  std::size_t sent_ = 0;              ///< the number of frames_ that were sent
  std::size_t sent_bytes_ = 0;        ///< payload bytes of sent frames that are not acknowledged
  std::size_t waiting_bytes_ = 0;     ///< payload bytes of frames that were not sent
  std::uint64_t orders_ = 0;          ///< transmissions so far
  std::uint64_t newest_arrived_ = 0;  ///< the largest order of an acknowledged frame
  Moment timer_ = kNever;             ///< the next retransmission of the oldest frame
  unsigned silences_ = 0;             ///< the number of times that the timer fired since the last acknowledgement
  Nanoseconds round_trip_{0};         ///< smoothed
  Nanoseconds deviation_{0};          ///< smoothed deviation of the round trips
  Nanoseconds retry_;                 ///< the retransmission timeout before doubling
  std::vector<std::shared_ptr<const void>> retired_;  ///< payloads that `release` frees

  // Receiving.
  std::uint64_t taken_ = 0;                 ///< the number of frames that were delivered
  std::map<std::uint64_t, Message> early_;  ///< frames that arrived before their turn, by place
  std::size_t early_bytes_ = 0;
  unsigned owed_ = 0;  ///< frames that arrived since the last acknowledgement
  Counts counts_;
};

}  // namespace psring::net
