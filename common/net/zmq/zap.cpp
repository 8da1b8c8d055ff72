#include <algorithm>
#include <cerrno>
#include <stop_token>
#include <string_view>
#include <utility>

#include <sys/eventfd.h>
#include <zmq.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/zmq/socket.h>
#include <psring/common/net/zmq/zap.h>

namespace psring::net {
namespace {

constexpr std::size_t kCurveKeyBytes = 32;

/// Receives a request: version, id, domain, address, identity, mechanism, and CURVE's raw public key.
std::vector<std::string> receive_parts(void* socket) {
  std::vector<std::string> parts;
  zmq_msg_t part;
  zmq_msg_init(&part);
  bool more = true;
  while (more && zmq_msg_recv(&part, socket, ZMQ_DONTWAIT) >= 0) {
    parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    more = zmq_msg_more(&part) != 0;
  }
  zmq_msg_close(&part);
  return parts;
}

bool is_allowed(const std::vector<std::string>& request, const std::vector<std::string>& allowed) {
  if (request.size() != 7 || request[5] != "CURVE" || request[6].size() != kCurveKeyBytes) return false;
  char text[kCurveKeyBytes / 4 * 5 + 1];
  zmq_z85_encode(text, reinterpret_cast<const std::uint8_t*>(request[6].data()), kCurveKeyBytes);
  return std::find(allowed.begin(), allowed.end(), text) != allowed.end();
}

void answer_one(void* socket, const std::vector<std::string>& allowed) {
  const std::vector<std::string> request = receive_parts(socket);
  if (request.size() < 2) return;
  const bool accepted = is_allowed(request, allowed);
  // Version, id, status, status text, user name, metadata.
  const std::string_view answer[] = {
      "1.0", request[1], accepted ? "200" : "400", accepted ? "OK" : "not this job's key", "", ""};
  for (const std::string_view& part : answer)
    zmq_send(socket, part.data(), part.size(), ZMQ_DONTWAIT | (&part == std::end(answer) - 1 ? 0 : ZMQ_SNDMORE));
}

void serve(const std::stop_token& stop, const ZmqSocket& socket, int wake, const std::vector<std::string>& allowed) {
  const std::stop_callback on_stop(stop, [wake] { ::eventfd_write(wake, 1); });
  zmq_pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake, ZMQ_POLLIN, 0}};
  while (!stop.stop_requested()) {
    if (zmq_poll(items, 2, -1) > 0 && (items[0].revents & ZMQ_POLLIN) != 0) answer_one(socket.handle(), allowed);
  }
}

}  // namespace

ZapAuthenticator::ZapAuthenticator(void* zmq_context, std::vector<std::string> allowed_public_keys) {
  ZmqSocket socket(zmq_context, ZMQ_REP);
  socket.set(ZMQ_LINGER, 0);
  const int bound = zmq_bind(socket.handle(), "inproc://zeromq.zap.01");
  check(bound == 0, "ZAP: this context has an authenticator already");
  thread_ = std::jthread([socket = std::move(socket), wake = make_eventfd(), allowed = std::move(allowed_public_keys)](
                             const std::stop_token& stop) { serve(stop, socket, wake.get(), allowed); });
}

void use_curve_server(void* zmq_socket, const CurveKeys& server, const ZapAuthenticator&) {
  const int on = 1;
  constexpr std::string_view kDomain = "psring";
  const bool set = zmq_setsockopt(zmq_socket, ZMQ_CURVE_SERVER, &on, sizeof on) == 0 &&
                   zmq_setsockopt(zmq_socket, ZMQ_CURVE_SECRETKEY, server.secret_key.c_str(), 41) == 0 &&
                   zmq_setsockopt(zmq_socket, ZMQ_ZAP_DOMAIN, kDomain.data(), kDomain.size()) == 0;
  check(set, "ZeroMQ: CURVE is not available: {}", zmq_strerror(errno));
}

void use_curve_client(void* zmq_socket, const CurveKeys& client, const std::string& server_public_key) {
  const bool set = zmq_setsockopt(zmq_socket, ZMQ_CURVE_SERVERKEY, server_public_key.c_str(), 41) == 0 &&
                   zmq_setsockopt(zmq_socket, ZMQ_CURVE_PUBLICKEY, client.public_key.c_str(), 41) == 0 &&
                   zmq_setsockopt(zmq_socket, ZMQ_CURVE_SECRETKEY, client.secret_key.c_str(), 41) == 0;
  check(set, "ZeroMQ: CURVE is not available: {}", zmq_strerror(errno));
}

}  // namespace psring::net
