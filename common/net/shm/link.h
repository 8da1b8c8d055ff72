#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/system/fd.h>
#include <psring/common/device/arena.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One end of a link through shared memory, between a client, which provides the memory, and a server.
///
///   rings file := wants(client) wants(server) to_client to_server bounce(to_client) bounce(to_server)
///   direction  := head tail bounce_tail 1024 * entry           each on cache lines of its own
///   entry      := header (128 B) place (0 none, 1 arena, 2 bounce) position
///
/// A payload in the client's arena travels as its offset. Any other payload is copied into the bounce region, a ring of
/// kBounceBytes; only touched pages of the ring use memory. While a ring is full, frames wait in order, and continue
/// when this end receives. `try_receive` copies the payload out of the bounce region into a block of the receiver, so
/// a message that the receiver keeps occupies nothing that a sender waits for (see Transport).
///
/// Neither end trusts the other: each word of the peer is read once, checked, then used. Invalid words are protocol
/// errors, and the caller must drop the link. Belongs to one thread; messages may be released in any thread, and after
/// the link.
class ShmLink {
 public:
  static constexpr std::size_t kEntries = 1024;
  static constexpr std::size_t kBounceBytes = kMaxPayloadBytes;
  static constexpr std::size_t kFiles = 4;

  /// The client's end, which makes the memory. REQUIRES: the arena is shared, and outlives the link and its messages.
  ShmLink(Peer self, Peer server, Arena& arena);
  /// The server's end, which maps the client's files. Throws protocol if the files are not valid.
  ShmLink(Peer self, Peer client, std::vector<Fd> files);
  ~ShmLink();

  /// The files that the client passes to the server: arena, rings, the server's bell, the client's bell.
  std::array<int, kFiles> files() const;

  Peer peer() const { return peer_; }
  void send(const FrameHeader& header, std::span<const std::byte> payload);
  std::optional<Message> try_receive();
  /// Implements Channel::arm; the bell rings once there is an event.
  bool arm();
  const Fd& bell() const;
  std::size_t in_flight_bytes() const { return queued_bytes_; }

 private:
  struct Memory;
  struct Queued {
    FrameHeader header;
    std::span<const std::byte> payload;
    std::vector<std::byte> copy;  ///< of a small payload, which no answer confirms
  };

  bool put(const FrameHeader& header, std::span<const std::byte> payload);
  bool flush();
  std::optional<std::uint64_t> find_bounce(std::size_t bytes);
  Message resolve(const FrameHeader& header, std::uint64_t place, std::uint64_t position);
  std::span<std::byte> reply_space(const FrameHeader& header) const;

  const Peer self_;
  const Peer peer_;
  const std::shared_ptr<Memory> memory_;  ///< shared with the messages that point into it
  const std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();  ///< shared with the blocks of messages
  std::uint64_t head_ = 0;                                                 ///< entries sent
  std::uint64_t seen_tail_ = 0;  ///< entries that the peer has taken, as last read
  std::uint64_t tail_ = 0;       ///< entries received
  std::uint64_t bounce_head_ = 0;
  std::uint64_t bounce_floor_ = 0;  ///< all bytes before were free when the ring last restarted
  std::uint64_t bounce_taken_ = 0;  ///< end of the last payload that was copied out of the incoming bounce region
  std::deque<Queued> queue_;
  std::size_t queued_bytes_ = 0;
};

}  // namespace psring::net
