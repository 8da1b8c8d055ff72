#include <cerrno>
#include <cstring>
#include <utility>

#include <zmq.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/zmq/monitor.h>

namespace psring::net {
namespace {

constexpr int kRejected =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kEvents =
    ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | kRejected;

}  // namespace

// If ZeroMQ's I/O thread cannot hand over an event, it waits, and all links of the context wait with it. Therefore the
// queue is unbounded, and monitoring stops before the reader is destroyed.

ZmqMonitor::ZmqMonitor(void* context, const ZmqSocket& socket, const std::string& name,
                       std::function<void(int)> on_connected)
    : watched_(socket.handle()), on_connected_(std::move(on_connected)), socket_(context, ZMQ_PAIR) {
  const std::string address = "inproc://" + name;
  socket_.set(ZMQ_LINGER, 0);
  socket_.set(ZMQ_RCVHWM, 0);
  const bool watched = zmq_socket_monitor(watched_, address.c_str(), kEvents) == 0 &&
                       zmq_connect(socket_.handle(), address.c_str()) == 0;
  check(watched, "ZeroMQ: cannot watch a socket: {}", zmq_strerror(errno));
}

ZmqMonitor::~ZmqMonitor() { zmq_socket_monitor(watched_, nullptr, 0); }

/// An event has two parts: its number (16 bits) and value, then the endpoint.
std::optional<ZmqMonitor::Event> ZmqMonitor::next() {
  for (;;) {
    char first[6];
    char endpoint[256];
    if (zmq_recv(socket_.handle(), first, sizeof first, ZMQ_DONTWAIT) != sizeof first) return std::nullopt;
    zmq_recv(socket_.handle(), endpoint, sizeof endpoint, ZMQ_DONTWAIT);
    std::uint16_t event = 0;
    std::int32_t value = 0;
    std::memcpy(&event, first, sizeof event);
    std::memcpy(&value, first + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_CONNECTED && on_connected_) on_connected_(value);
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return Event::ready;
    if (event == ZMQ_EVENT_DISCONNECTED) return Event::closed;
    if (event == ZMQ_EVENT_CLOSED) return Event::refused;
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return Event::denied;
    if ((event & kRejected) != 0) return Event::rejected;
  }
}

}  // namespace psring::net
