#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/fd.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One end of a link through shared memory, between a client, whose memory it is, and a server.
///
///   rings file := wants(client) wants(server) to_client to_server bounce(to_client) bounce(to_server)
///   direction  := head tail bounce_tail 1024 * entry           each on cache lines of its own
///   entry      := header (128 B) place (0 none, 1 arena, 2 bounce) position
///
/// A payload that lies in the client's arena travels as its offset. Any other is copied into the bounce
/// region, a ring of kBounceBytes of which only touched pages cost; while it is full, frames wait here,
/// in order, and go on when this end receives. Whoever holds bounced payloads for ever stops their
/// sender: answer, and let go.
///
/// Neither end trusts the other: what it wrote is read once, checked, then used; what cannot be is
/// protocol, and the link is to be dropped. Belongs to one thread; holders of messages may die in any,
/// and after the link.
class ShmLink {
 public:
  static constexpr std::size_t kEntries = 1024;
  static constexpr std::size_t kBounceBytes = kMaxPayloadBytes;
  static constexpr std::size_t kFiles = 4;

  /// The client's end: makes the memory. REQUIRES: the arena is shared, and outlives link and messages.
  ShmLink(Peer self, Peer server, Arena& arena);
  /// The server's end: maps what the client passed. Throws protocol where that is not what it should be.
  ShmLink(Peer self, Peer client, std::vector<Fd> files);
  ~ShmLink();

  /// What the client passes to the server: arena, rings, the server's bell, the client's bell.
  std::array<int, kFiles> files() const;

  Peer peer() const { return peer_; }
  void send(const FrameHeader& header, std::span<const std::byte> payload);
  std::optional<Message> try_receive();
  /// As Channel::arm; the bell rings once there is something.
  bool arm();
  const Fd& bell() const;
  std::size_t in_flight_bytes() const { return queued_bytes_; }

 private:
  struct Memory;
  struct Lease;
  struct Queued {
    FrameHeader header;
    std::span<const std::byte> payload;
    std::vector<std::byte> copy;  ///< of what is small: nobody answers a line of text
  };

  bool put(const FrameHeader& header, std::span<const std::byte> payload);
  bool flush();
  std::optional<std::uint64_t> find_bounce(std::size_t bytes);
  Message resolve(const FrameHeader& header, std::uint64_t place, std::uint64_t position);
  std::span<std::byte> reply_space(const FrameHeader& header) const;

  const Peer self_;
  const Peer peer_;
  const std::shared_ptr<Memory> memory_;  ///< shared with the messages that point into it
  std::uint64_t head_ = 0;                ///< of what we send
  std::uint64_t seen_tail_ = 0;           ///< of what we send, as last read
  std::uint64_t tail_ = 0;                ///< of what we receive
  std::uint64_t bounce_head_ = 0;
  std::uint64_t bounce_floor_ = 0;  ///< everything before was free when the ring last started afresh
  std::deque<Queued> queue_;
  std::size_t queued_bytes_ = 0;
};

}  // namespace psring::net
