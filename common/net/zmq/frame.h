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

/// A frame as received by a ROUTER or DEALER, not yet checked.
struct ZmqFrame {
  std::string routing_id;  ///< of the sender; a ROUTER's frames only
  std::string address;     ///< the sender's address, as ZeroMQ knows it: "10.0.0.2"
  int connection = -1;     ///< descriptor of the connection; a ROUTER's frames only
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  std::size_t parts = 0;
  std::shared_ptr<const void> holder;  ///< keeps ZeroMQ's memory alive
};

/// Returns the next frame, or nothing for now.
std::optional<ZmqFrame> receive_frame(void* socket, bool routed);

/// Checks a frame and converts it. Throws protocol unless the frame is one valid header with the announced payload.
/// Aligns the payload to its element size.
Message to_message(const ZmqFrame& frame);

/// Sends header and payload, to `routing_id` if it is not empty; never waits. Returns 0, or libzmq's errno.
int send_frame(void* socket, const std::string& routing_id, const std::shared_ptr<ZmqOutbox::Lane>& lane,
               const FrameHeader& header, std::span<const std::byte> payload);

/// Sets the common options of data links: bounded parts, an unlimited send queue, and a timeout of `silence` for
/// connections whose other end's TCP is silent.
void set_link_options(ZmqSocket& socket, Nanoseconds silence, const std::string& endpoint);

}  // namespace psring::net
