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

#include <psring/common/base/fd.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/tcp/stream_cipher.h>
#include <psring/common/net/transport.h>

namespace psring::net {

/// One TCP socket that carries frames both ways, without ever waiting. Whoever owns it watches its descriptor, edge-
/// triggered, and tells it what happened. Belongs to one thread.
class TcpStream {
 public:
  /// What is encrypted is sealed in pieces of so many bytes: the ring's own, so that most frames are one.
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

  TcpStream(Fd socket, std::shared_ptr<BlockPool> pool);

  const Fd& socket() const { return socket_; }
  /// Takes note of epoll's events. Those before the socket was connected tell nothing: begin anew.
  void on_events(std::uint32_t events);
  void on_connected();

  /// From now on both directions are encrypted. REQUIRES: all that was sent has left.
  void encrypt(const Mac& out, const Mac& in);

  /// Gives the kernel what it takes at once, and keeps the rest: a payload of more than kCopiedBytes stays the
  /// caller's. On a broken stream it is dropped: `receive` comes to the end, too.
  void send(const FrameHeader& header, std::span<const std::byte> payload);
  /// Goes on with sending; true where something left.
  bool flush();
  bool unsent() const { return !out_.empty() || sealed_begin_ < sealed_.size(); }
  /// Until it is 0, somebody has to go on with `flush`.
  std::size_t unsent_bytes() const { return unsent_bytes_ + sealed_.size() - sealed_begin_; }

  /// The next frame, as far as it is there. `place` is asked about each header: it throws where the header is not
  /// allowed. Throws protocol where the bytes are no frames.
  std::optional<Message> receive(const Place& place);
  /// May `receive` have something?
  bool readable() const { return readable_; }
  /// Look even where no event has told of anything.
  void try_anyway() { readable_ = !closed_; }
  /// The other end is gone, and all that it sent was received; `end` says how.
  bool closed() const { return closed_; }
  bool broken() const { return closed_ || broken_; }
  bool hung_up() const { return hung_up_ || broken(); }
  const std::string& end() const { return end_; }
  /// Tells the other end that nothing more will come.
  void shut_down();
  /// Takes the stream for closed.
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

  std::deque<Outgoing> out_;      ///< the first may have left in part
  std::size_t unsent_bytes_ = 0;  ///< of out_, headers too
  bool writable_ = true;
  bool broken_ = false;  ///< nothing can be sent any more
  std::optional<Sealer> sealer_;
  std::vector<std::byte> sealed_;  ///< on its way, from sealed_begin_
  std::size_t sealed_begin_ = 0;

  std::vector<std::byte> buffer_;  ///< what was read ahead
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  bool readable_ = true;
  bool hung_up_ = false;  ///< the end is in sight: no further event will tell of it
  bool closed_ = false;
  std::string end_;
  std::optional<Mac> opener_key_;  ///< until the other end's head is there
  std::optional<Opener> opener_;
  std::optional<FrameHeader> header_;  ///< of the frame that is arriving
  std::shared_ptr<std::byte> block_;   ///< shared with the message; none where the payload has a place
  std::span<std::byte> payload_;
  std::size_t received_ = 0;
};

}  // namespace psring::net
