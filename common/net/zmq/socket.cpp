#include <array>
#include <cerrno>

#include <zmq.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/zmq/socket.h>

namespace psring::net {

ZmqContext::ZmqContext() : handle_(zmq_ctx_new()) {
  check(handle_ != nullptr, "ZeroMQ: no context: {}", zmq_strerror(errno));
  zmq_ctx_set(handle_, ZMQ_IO_THREADS, 1);
}

ZmqContext::~ZmqContext() {
  while (zmq_ctx_term(handle_) != 0 && errno == EINTR) {
  }
}

ZmqSocket::ZmqSocket(void* context, int type) : handle_(zmq_socket(context, type)) {
  check(handle_ != nullptr, "ZeroMQ: no socket: {}", zmq_strerror(errno));
}

ZmqSocket::~ZmqSocket() {
  if (handle_ != nullptr) zmq_close(handle_);
}

void ZmqSocket::set(int option, int value) {
  const int result = zmq_setsockopt(handle_, option, &value, sizeof value);
  check(result == 0, "ZeroMQ: option {} = {}: {}", option, value, zmq_strerror(errno));
}

void ZmqSocket::set(int option, const std::string& value) {
  const int result = zmq_setsockopt(handle_, option, value.data(), value.size());
  check(result == 0, "ZeroMQ: option {}: {}", option, zmq_strerror(errno));
}

int ZmqSocket::get(int option) const {
  int value = 0;
  std::size_t size = sizeof value;
  const int result = zmq_getsockopt(handle_, option, &value, &size);
  check(result == 0, "ZeroMQ: option {}: {}", option, zmq_strerror(errno));
  return value;
}

std::string ZmqSocket::get_text(int option) const {
  std::array<char, 256> text{};
  std::size_t size = text.size();
  const int result = zmq_getsockopt(handle_, option, text.data(), &size);
  check(result == 0, "ZeroMQ: option {}: {}", option, zmq_strerror(errno));
  return text.data();
}

}  // namespace psring::net
