#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <zmq.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/zmq/frame.h>
#include <psring/common/net/zmq/gate.h>

namespace psring::net {
namespace {

/// Frames that ZeroMQ buffers from a peer; further frames wait at the sender.
constexpr int kReceiveFrames = 1024;

std::span<const std::byte> bytes_of(const zmq::message_t& part) {
  return {static_cast<const std::byte*>(part.data()), part.size()};
}

/// Aligns a message's payload to its element size. Small parts lie anywhere in ZeroMQ's read buffer, and are copied if
/// they are misaligned; larger parts have their own memory.
void align(Message& message) {
  const std::span<const std::byte> from = message.payload;
  if (reinterpret_cast<std::uintptr_t>(from.data()) % size_bytes(message.header.dtype) == 0) return;
  // Shared, because it becomes the message's holder
  const std::shared_ptr<std::uint64_t[]> copy(new std::uint64_t[round_up(from.size(), 8) / 8]);
  std::memcpy(copy.get(), from.data(), from.size());
  message.payload = {reinterpret_cast<const std::byte*>(copy.get()), from.size()};
  message.holder = copy;
}

/// Sends header and payload as one copied part. Returns 0, or libzmq's errno.
int send_copy(void* socket, std::span<const std::byte> header, std::span<const std::byte> payload) {
  zmq_msg_t part;
  const std::size_t bytes = header.size() + payload.size();
  check(zmq_msg_init_size(&part, bytes) == 0, "ZeroMQ: no memory for {} bytes", bytes);
  auto* to = static_cast<std::byte*>(zmq_msg_data(&part));
  std::memcpy(to, header.data(), header.size());
  if (!payload.empty()) std::memcpy(to + header.size(), payload.data(), payload.size());
  if (zmq_msg_send(&part, socket, ZMQ_DONTWAIT) >= 0) return 0;
  const int error = errno;
  zmq_msg_close(&part);
  return error;
}

}  // namespace

std::optional<ZmqFrame> receive_frame(void* socket, bool routed) {
  zmq::message_t part;
  if (zmq_msg_recv(part.handle(), socket, ZMQ_DONTWAIT) < 0) return std::nullopt;
  ZmqFrame frame;
  bool more = part.more();
  if (routed) {
    frame.routing_id = part.to_string();
    part.rebuild();
    if (!more || zmq_msg_recv(part.handle(), socket, ZMQ_DONTWAIT) < 0) return frame;
    more = part.more();
  }
  const auto kept = std::make_shared<std::array<zmq::message_t, 2>>();
  for (;;) {
    if (frame.parts < kept->size()) (*kept)[frame.parts].move(part);
    ++frame.parts;
    if (!more || zmq_msg_recv(part.handle(), socket, ZMQ_DONTWAIT) < 0) break;
    more = part.more();
  }
  if (routed && frame.parts > 0) {
    const char* address = zmq_msg_gets((*kept)[0].handle(), "Peer-Address");
    if (address != nullptr) frame.address = address;
    frame.connection = connection_of(*(*kept)[0].handle());
  }
  const std::span<const std::byte> first = bytes_of((*kept)[0]);
  if (frame.parts == 1) {
    frame.header = first.first(std::min(first.size(), kHeaderBytes));
    frame.payload = first.subspan(frame.header.size());
  } else {
    frame.header = bytes_of((*kept)[1]);
    frame.payload = first;
  }
  frame.holder = kept;
  return frame;
}

Message to_message(const ZmqFrame& frame) {
  if (frame.parts == 0 || frame.parts > 2)
    fail(ErrorKind::protocol, "a message of {} parts, expected payload and header", frame.parts);
  Message message;
  message.header = decode(frame.header);
  if (message.header.payload_bytes != frame.payload.size())
    fail(ErrorKind::protocol, "{} with {} bytes of payload, {} announced", to_string(message.header.type),
         frame.payload.size(), message.header.payload_bytes);
  message.payload = frame.payload;
  message.holder = frame.holder;
  align(message);
  return message;
}

int send_frame(void* socket, const std::string& routing_id, const std::shared_ptr<ZmqOutbox::Lane>& lane,
               const FrameHeader& header, std::span<const std::byte> payload) {
  if (!routing_id.empty() && zmq_send(socket, routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
    return errno;
  if (payload.size() <= kCopiedBytes) return send_copy(socket, encode(header), payload);
  return ZmqOutbox::lend(socket, lane, header, payload);
}

void set_link_options(ZmqSocket& socket, Nanoseconds silence, const std::string& endpoint) {
  // Only for IPv6: a socket for both families writes IPv4 addresses as [::ffff:127.0.0.1].
  socket.set(ZMQ_IPV6, endpoint.starts_with("tcp://[") ? 1 : 0);
  const auto silence_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(silence).count());
  socket.set(ZMQ_LINGER, 0);
  socket.set(ZMQ_SNDHWM, 0);
  socket.set(ZMQ_RCVHWM, kReceiveFrames);
  // TCP keepalive watches the connection, because ZMTP's heartbeats would set a timer for every message.
  const Keepalive alive = keepalive(silence);
  socket.set(ZMQ_TCP_KEEPALIVE, 1);
  socket.set(ZMQ_TCP_KEEPALIVE_IDLE, alive.idle_s);
  socket.set(ZMQ_TCP_KEEPALIVE_INTVL, alive.interval_s);
  socket.set(ZMQ_TCP_KEEPALIVE_CNT, alive.probes);
  socket.set(ZMQ_TCP_MAXRT, silence_ms);
  socket.set(ZMQ_HANDSHAKE_IVL, silence_ms);
  constexpr std::size_t kCurveBytes = 33;  // that encryption adds to a part
  const auto largest = static_cast<std::int64_t>(kMaxPayloadBytes + kCurveBytes);
  const int bounded = zmq_setsockopt(socket.handle(), ZMQ_MAXMSGSIZE, &largest, sizeof largest);
  check(bounded == 0, "ZeroMQ: ZMQ_MAXMSGSIZE: {}", zmq_strerror(errno));
}

}  // namespace psring::net
