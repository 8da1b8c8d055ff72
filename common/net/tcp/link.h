#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/net/tcp/stream.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One link of a TCP channel: all frames with one peer, over n streams. Frame k of each direction travels on stream
/// k mod n and is delivered in its turn; at most one early frame of each stream is held back. Never waits. Belongs to
/// one thread.
class TcpLink {
 public:
  /// REQUIRES: there is at least one stream, and streams[i] is stream i at the other end.
  TcpLink(Peer peer, std::uint32_t incarnation, std::string where, std::vector<std::unique_ptr<TcpStream>> streams);

  Peer peer() const { return peer_; }
  std::uint32_t incarnation() const { return incarnation_; }
  const std::string& where() const { return where_; }
  std::size_t streams() const { return streams_.size(); }
  /// "worker 1 at 10.0.0.2:7001"
  std::string name() const;

  /// Sends a frame, as TcpStream::send does. Returns true if some of that stream's bytes could not leave at once.
  bool send(const FrameHeader& header, std::span<const std::byte> payload);
  /// Continues to send. Returns true if bytes left.
  bool flush();
  /// Do bytes wait for `flush`?
  bool unsent() const;
  std::size_t unsent_bytes() const;

  /// The next frame in order, if it is there; see TcpStream::receive. Throws peer_lost at the end of the link, after
  /// the frames that the other end sent before were delivered.
  std::optional<Message> receive(const Place& place);
  /// Makes the next `receive` look at the stream whose turn it is, or at all streams, without an event of epoll.
  void try_next_stream() { streams_[receive_turn_]->try_anyway(); }
  void try_all_streams();
  /// May `receive` have something?
  bool readable() const;

  /// Has one of the streams seen the other end go?
  bool hung_up() const;
  /// Have all bytes reached the other end's kernel, or can they no longer?
  bool settled() const;
  /// Returns the bytes that have left for the other end's kernel and have not reached it, as far as is known.
  std::size_t unacknowledged_bytes() const;
  /// Gives the link up if the other end's TCP has not answered for `silence`, as far as calls have seen.
  void check_silence(Moment now, Nanoseconds silence);

 private:
  // Constant after construction.
  const Peer peer_;
  const std::uint32_t incarnation_;
  const std::string where_;
  const std::vector<std::unique_ptr<TcpStream>> streams_;  ///< by number; epoll points at them

  std::vector<std::optional<Message>> early_;  ///< by stream: a frame that arrived before its turn
  std::size_t send_turn_ = 0;                  ///< the stream of the next frame that is sent
  std::size_t receive_turn_ = 0;               ///< the stream of the next frame that is delivered
  bool ending_ = false;                        ///< a stream broke, and the others were shut down
  std::optional<Moment> unanswered_since_;
};

}  // namespace psring::net
