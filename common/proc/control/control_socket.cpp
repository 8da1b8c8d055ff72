#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <zmq.h>

#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/zmq/zap.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/control/control_socket.h>

namespace psring::net {
namespace {

constexpr int kFailedHandshakes = 3;  ///< show a wrong key: a single failure may be a listener that is closing

ZmqSocket make_socket(const ZmqContext& context, const JobKey& key) {
  ZmqSocket socket(context.handle(), ZMQ_DEALER);
  use_curve_client(socket.handle(), key.client_keys(), key.server_keys().public_key);
  socket.set(ZMQ_LINGER, 0);
  socket.set(ZMQ_SNDHWM, 0);
  socket.set(ZMQ_IPV6, 1);
  const std::int64_t most = kMaxControlBytes + 4096;  // with CURVE's overhead
  check(zmq_setsockopt(socket.handle(), ZMQ_MAXMSGSIZE, &most, sizeof most) == 0, "ZeroMQ: {}", zmq_strerror(errno));
  return socket;
}

}  // namespace

ControlSocket::ControlSocket(const ZmqContext& context, const JobKey& key, int number)
    : socket_(make_socket(context, key)), monitor_(context.handle(), socket_, fmt::format("monitor-{}", number)) {}

std::optional<std::string> ControlSocket::connect(const std::string& address) {
  if (zmq_connect(socket_.handle(), ("tcp://" + address).c_str()) == 0) return std::nullopt;
  return zmq_strerror(errno);
}

bool ControlSocket::wait(int wake_fd, int stop_fd, Moment now, Moment deadline) {
  zmq_pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0},
                            {monitor_.socket().handle(), 0, ZMQ_POLLIN, 0},
                            {nullptr, wake_fd, ZMQ_POLLIN, 0},
                            {nullptr, stop_fd, ZMQ_POLLIN, 0}};
  zmq_poll(items, stop_fd >= 0 ? 4 : 3, poll_milliseconds(now, deadline));
  return stop_fd >= 0 && (items[3].revents & ZMQ_POLLIN) != 0;
}

ControlSocket::Changes ControlSocket::take_changes() {
  using Event = ZmqMonitor::Event;
  Changes changes;
  while (const auto event = monitor_.next()) {
    if (event == Event::ready) open_ = true;
    if (event == Event::closed && open_) changes.closed = true;
    const bool failed = event == Event::rejected;
    if (event == Event::denied || (failed && ++failed_handshakes_ >= kFailedHandshakes)) changes.refused = true;
  }
  return changes;
}

std::optional<std::span<const std::byte>> ControlSocket::receive(std::span<std::byte> buffer) {
  const int size = zmq_recv(socket_.handle(), buffer.data(), buffer.size(), ZMQ_DONTWAIT);
  if (size < 0) return std::nullopt;
  return buffer.first(std::min(static_cast<std::size_t>(size), buffer.size()));
}

void ControlSocket::send(std::span<const std::byte> message) {
  zmq_send(socket_.handle(), message.data(), message.size(), ZMQ_DONTWAIT);
}

void ControlSocket::linger() { socket_.set(ZMQ_LINGER, 1000); }

}  // namespace psring::net
