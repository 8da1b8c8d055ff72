#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/handshake.h>
#include <psring/common/net/tcp/stream.h>

namespace psring::net {

inline constexpr std::size_t kMaxTcpStreams = 16;  ///< the most streams of a link

/// Names the link and the stream that a socket belongs to; the socket's hello carries it. The proofs do not cover it,
/// but the keys of an encrypted stream are derived from it.
struct TcpPart {
  std::uint64_t mark = 0;     ///< a random number that the client draws for the link, the same in all its streams
  std::uint64_t number = 0;   ///< of the stream, from 0
  std::uint64_t streams = 1;  ///< the number of streams of the link
  bool encrypt = false;

  static TcpPart of(const FrameHeader& hello);
  void write(FrameHeader& hello) const;
};

/// A socket that this side opens.
class TcpOpening {
 public:
  TcpOpening(const JobKey& key, Identity self, Peer peer, std::string where, TcpPart part,
             std::unique_ptr<TcpStream> stream);

  /// Continues the handshake as far as is possible now. Throws peer_lost, unauthorised or protocol, naming the peer and
  /// the endpoint.
  void advance();
  bool open() const { return handshake_.open(); }
  std::string obstacle() const { return connected_ ? "it does not answer" : "no connection"; }

  Peer peer() const { return peer_; }
  const std::string& where() const { return where_; }
  std::unique_ptr<TcpStream> take_stream() { return std::move(stream_); }

 private:
  bool connect();

  Peer peer_;
  std::string where_;
  TcpPart part_;
  std::unique_ptr<TcpStream> stream_;
  ClientHandshake handshake_;
  bool connected_ = false;
};

/// An accepted socket whose client has not proved the key yet.
class TcpStranger {
 public:
  /// Called once the key is proved. Returns in one line why the client may not have this link; "" if it may.
  using Objection = std::function<std::string(const TcpStranger&)>;

  TcpStranger(const JobKey& key, Identity self, bool encrypt, std::string where, Moment deadline,
              std::unique_ptr<TcpStream> stream);

  /// Continues the handshake as far as is possible now, until the key is proved. Returns false if the client failed:
  /// then the caller drops the socket. A client that speaks the protocol has received the reason.
  bool advance(const Objection& objection);
  bool proved() const { return handshake_.open(); }
  bool wrong_key() const { return handshake_.wrong_key(); }
  Moment deadline() const { return deadline_; }

  /// REQUIRES proved().
  Identity client() const { return handshake_.client(); }
  const TcpPart& part() const { return part_; }
  const std::string& where() const { return where_; }
  std::unique_ptr<TcpStream> take_stream() { return std::move(stream_); }

 private:
  HandshakeFrame answer(const Message& message, const Objection& objection);

  ServerHandshake handshake_;
  bool encrypt_;
  std::string where_;
  Moment deadline_;
  std::unique_ptr<TcpStream> stream_;
  TcpPart part_;
};

}  // namespace psring::net
