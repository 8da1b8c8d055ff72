#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/net/handshake.h>
#include <psring/common/net/zmq/channel.h>
#include <psring/common/net/zmq/frame.h>
#include <psring/common/net/zmq/monitor.h>

namespace psring::net {

/// The end of one link that this process opens.
class ZmqDealer {
 public:
  ZmqDealer(void* context, const ZmqOptions& options, Peer peer, const std::string& endpoint,
            std::shared_ptr<ZmqOutbox> outbox);

  /// Goes on with opening the link as far as is possible now. Throws as ZmqChannel::connect.
  void advance();
  bool open() const { return handshake_.open(); }
  /// ZeroMQ's events that `advance` waits for on the socket.
  short awaited_events() const;
  /// Why the link is not open yet, for the error at the deadline.
  std::string obstacle() const;

  /// Once open: has the connection ended? `closed` looks, `known_closed` tells what it saw.
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
  bool ready_ = false;    ///< connected, CURVE is through
  bool greeted_ = false;  ///< hello is sent
  bool refused_ = false;  ///< the last attempt found nobody listening
  bool closed_ = false;
};

}  // namespace psring::net
