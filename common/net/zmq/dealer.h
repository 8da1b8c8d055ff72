#pragma once

#include <string>

#include <psring/common/net/handshake.h>
#include <psring/common/net/zmq/channel.h>
#include <psring/common/net/zmq/frame.h>
#include <psring/common/net/zmq/monitor.h>

namespace psring::net {

/// The connecting end of a link.
class ZmqDealer {
 public:
  ZmqDealer(void* context, const ZmqOptions& options, Peer peer, const std::string& endpoint,
            std::shared_ptr<ZmqOutbox> outbox);

  /// Advances the opening of the link without waiting. Throws like ZmqChannel::connect.
  void advance();
  bool open() const { return handshake_.open(); }
  /// The ZeroMQ events on the socket that `advance` waits for.
  short awaited_events() const;
  /// Explains why the link is not open yet, for the error at the deadline.
  std::string obstacle() const;

  /// Whether an open connection has ended: `closed` checks for events, `known_closed` returns the last result.
  bool closed();
  bool known_closed() const { return closed_; }

  Peer peer() const { return peer_; }
  const std::string& endpoint() const { return endpoint_; }
  ZmqSocket& socket() { return socket_; }
  const ZmqSocket& monitor() const { return monitor_.socket(); }
  const std::shared_ptr<ZmqOutbox::Lane>& lane() const { return lane_; }

 private:
  void send(const HandshakeFrame& frame);
  [[noreturn]] void fail_closed(ZmqMonitor::Event event) const;

  const Peer peer_;
  const std::string endpoint_;
  const bool encrypt_;
  ZmqSocket socket_;
  ZmqMonitor monitor_;
  ClientHandshake handshake_;
  std::shared_ptr<ZmqOutbox::Lane> lane_;
  bool ready_ = false;    ///< connected, and CURVE's handshake is done
  bool greeted_ = false;  ///< hello was sent
  bool refused_ = false;  ///< at the last attempt, no process listened
  bool closed_ = false;
};

}  // namespace psring::net
