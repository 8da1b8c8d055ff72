#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/net/transport.h>
#include <psring/common/net/zmq/outbox.h>
#include <psring/common/net/zmq/socket.h>

namespace psring::net {

/// What a ROUTER or DEALER received, not yet looked at.
struct ZmqFrame {
  std::string routing_id;  ///< of the sender; a ROUTER's frames only
  std::string address;     ///< the sender's, as ZeroMQ knows it: "10.0.0.2"
  int connection = -1;     ///< its descriptor; a ROUTER's frames only
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  std::size_t parts = 0;
  std::shared_ptr<const void> holder;  ///< keeps the bytes, where ZeroMQ put them
};

/// The next frame, or nothing for now.
std::optional<ZmqFrame> receive_frame(void* socket, bool routed);

/// Looks at it: throws protocol where it is not exactly one valid header with the payload that it announces.
/// The payload is on a boundary of its elements.
Message to_message(const ZmqFrame& frame);

/// Sends header and payload, to `routing_id` where there is one; never waits. Returns 0, or libzmq's errno.
int send_frame(void* socket, const std::string& routing_id, const std::shared_ptr<ZmqOutbox::Lane>& lane,
               const FrameHeader& header, std::span<const std::byte> payload);

/// The options that sockets of data links have in common: bounded parts, no limit for what waits to be sent, and a
/// connection whose other end's TCP says nothing for `silence` breaks.
void set_link_options(ZmqSocket& socket, Nanoseconds silence, const std::string& endpoint);

}  // namespace psring::net
