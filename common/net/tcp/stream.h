#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/system/fd.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/tcp/stream_cipher.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One TCP socket that carries frames both ways, and never waits. The owner watches the descriptor with epoll (edge-
/// triggered), and passes the events on. Belongs to one thread.
class TcpStream {
 public:
  /// Encrypted payloads are sealed in chunks of this size. The ring's segments have the same size, so most frames are
  /// one chunk.
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

  TcpStream(Fd socket, std::shared_ptr<BlockPool> pool);

  const Fd& socket() const { return socket_; }
  void on_events(std::uint32_t events);  ///< notes epoll's events
  /// Forgets the events from before the socket was connected, which mean nothing.
  void on_connected();

  /// Encrypts both directions from now on. REQUIRES: no frame waits to be sent.
  void encrypt(const Mac& out, const Mac& in);

  /// Passes to the kernel as many bytes as it takes at once, and keeps the rest. A payload above kCopiedBytes is not
  /// copied: it stays in the caller's memory. A broken stream drops the frame; `receive` then comes to the end, too.
  void send(const FrameHeader& header, std::span<const std::byte> payload);
  /// Continues to send. Returns true if bytes left.
  bool flush();
  bool unsent() const { return !out_.empty() || sealed_begin_ < sealed_.size(); }
  /// The owner has to call `flush` until this is 0.
  std::size_t unsent_bytes() const { return unsent_bytes_ + sealed_.size() - sealed_begin_; }

  /// The next frame, if it is complete. `place` is called with each header, and throws if the header is not allowed.
  /// Throws protocol if the bytes are not frames.
  std::optional<Message> receive(const Place& place);
  /// May `receive` have something?
  bool readable() const { return readable_; }
  /// Makes the next `receive` look at the socket even if no event has arrived.
  void try_anyway() { readable_ = !closed_; }
  /// The connection has ended, and all frames were received; `end` says how it ended.
  bool closed() const { return closed_; }
  bool broken() const { return closed_ || broken_; }
  bool hung_up() const { return hung_up_ || broken(); }
  const std::string& end() const { return end_; }
  /// Tells the other end that nothing more will come.
  void shut_down();
  /// Closes the stream, for this reason.
  void give_up(const std::string& why);

 private:
  struct Outgoing {
    std::array<std::byte, kHeaderBytes> header;
    std::span<const std::byte> payload;
    std::unique_ptr<std::byte[]> copy;
    std::size_t done = 0;  ///< bytes of header and payload that have left

    std::size_t bytes() const { return kHeaderBytes + payload.size(); }
  };

  std::ptrdiff_t write_frames();
  std::ptrdiff_t write_sealed();
  void seal_next();
  void left(std::size_t bytes);
  void break_off();

  bool advance(const Place& place);
  void begin(const FrameHeader& header, const Place& place);
  std::size_t wanted() const;
  void fill();
  std::span<const std::byte> take(std::size_t bytes);
  std::size_t buffered() const { return buffer_end_ - buffer_begin_; }
  Message finish();

  const Fd socket_;
  const std::shared_ptr<BlockPool> pool_;  ///< shared with the blocks of messages

  std::deque<Outgoing> out_;      ///< frames to send; a part of the first may have left
  std::size_t unsent_bytes_ = 0;  ///< bytes of out_ that have not left, with headers
  bool writable_ = true;
  bool broken_ = false;  ///< no more bytes can be sent
  std::optional<Sealer> sealer_;
  std::vector<std::byte> sealed_;  ///< the encrypted chunk that is being sent, from sealed_begin_
  std::size_t sealed_begin_ = 0;

  std::vector<std::byte> buffer_;  ///< bytes that were read ahead
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  bool readable_ = true;
  bool hung_up_ = false;  ///< the other end has hung up: no later event will report the end
  bool closed_ = false;
  std::string end_;
  std::optional<Mac> opener_key_;  ///< until the other end's seal head has arrived
  std::optional<Opener> opener_;
  std::optional<FrameHeader> header_;  ///< of the frame that is arriving
  std::shared_ptr<std::byte> block_;   ///< shared with the message; null if the payload has a place
  std::span<std::byte> payload_;
  std::size_t received_ = 0;
};

}  // namespace psring::net
