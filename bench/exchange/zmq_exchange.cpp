#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <zmq.hpp>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/plain_units.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/optim/rules.h>

namespace psring::bench {
namespace {

constexpr std::size_t kMessageElements = std::size_t{256} << 10;

struct KeyPair {
  char public_key[41] = {};
  char secret_key[41] = {};
  KeyPair() {
    if (zmq_curve_keypair(public_key, secret_key) != 0) fail(ErrorKind::bug, "ZeroMQ was built without CURVE");
  }
};

zmq::message_t receive(zmq::socket_t& socket) {
  zmq::message_t message;
  if (!socket.recv(message)) fail(ErrorKind::peer_lost, "ZeroMQ: nothing came");
  return message;
}

PlainHeader header_of(const zmq::message_t& message) {
  PlainHeader header;
  if (message.size() != sizeof header) fail(ErrorKind::protocol, "a header of {} bytes", message.size());
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

/// Returns a message's values, copied if they are misaligned: small messages lie anywhere in ZeroMQ's read buffer.
std::span<const float> aligned(const zmq::message_t& message, std::vector<float>& scratch) {
  const std::size_t elements = message.size() / sizeof(float);
  const auto* values = static_cast<const float*>(message.data());
  if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0) return {values, elements};
  scratch.resize(elements);
  std::memcpy(scratch.data(), message.data(), message.size());
  return scratch;
}

class ZmqExchange final : public Exchange {
 public:
  ZmqExchange(const std::string& endpoint, const std::vector<std::size_t>& elements)
      : socket_(context_, zmq::socket_type::dealer), gradients_(elements, 0), parameters_(elements, 0) {
    const std::size_t space = endpoint.find(' ');
    const KeyPair keys;
    socket_.set(zmq::sockopt::curve_serverkey, endpoint.substr(space + 1));
    socket_.set(zmq::sockopt::curve_publickey, std::string(keys.public_key));
    socket_.set(zmq::sockopt::curve_secretkey, std::string(keys.secret_key));
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 60'000);
    socket_.connect(endpoint.substr(0, space));
  }

  std::span<float> gradient(std::size_t unit) override { return gradients_[unit]; }
  std::span<const float> parameters(std::size_t unit) override { return parameters_[unit]; }
  void push_then_pull(std::size_t unit) override {
    for (std::size_t left = ask(PlainHeader::push, unit); left > 0; --left) receive(socket_);
    take_values(ask(PlainHeader::pull, unit));
  }
  void push_pull(std::size_t unit) override { take_values(ask(PlainHeader::push_pull, unit)); }

 private:
  /// Sends all messages of a unit, and returns their number.
  std::size_t ask(PlainHeader::Operation operation, std::size_t unit) {
    std::size_t messages = 0;
    const std::span<const float> all = gradients_[unit];
    for (std::size_t begin = 0; begin < all.size(); begin += kMessageElements, ++messages) {
      const std::size_t end = std::min(all.size(), begin + kMessageElements);
      const PlainHeader header{operation, static_cast<std::uint32_t>(unit), begin, end};
      const bool carries = operation != PlainHeader::pull;
      socket_.send(zmq::buffer(&header, sizeof header), carries ? zmq::send_flags::sndmore : zmq::send_flags::none);
      if (carries) socket_.send(zmq::buffer(&all[begin], (end - begin) * sizeof(float)), zmq::send_flags::none);
    }
    return messages;
  }
  void take_values(std::size_t messages) {
    for (; messages > 0; --messages) {
      const std::span<float> into = parameters_.part(header_of(receive(socket_)));
      const zmq::message_t values = receive(socket_);
      if (values.size() != into.size_bytes()) fail(ErrorKind::protocol, "values of {} bytes", values.size());
      std::memcpy(into.data(), values.data(), values.size());
    }
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
  PlainUnits gradients_;
  PlainUnits parameters_;
};

}  // namespace

void serve_zmq(const ServerPlan& plan) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::router);
  const KeyPair keys;
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, std::string(keys.secret_key));
  socket.bind("tcp://127.0.0.1:*");
  publish_endpoint(plan.endpoint_fd, socket.get(zmq::sockopt::last_endpoint) + " " + keys.public_key);

  const auto optimizer = optim::make_sgd({});
  PlainUnits parameters(plan.elements, kStart);
  std::vector<float> scratch;
  for (;;) {
    zmq::message_t worker = receive(socket);
    const PlainHeader header = header_of(receive(socket));
    const std::span<float> values = parameters.part(header);
    if (header.operation != PlainHeader::pull) {
      const zmq::message_t gradient = receive(socket);
      if (gradient.size() != values.size_bytes()) fail(ErrorKind::protocol, "a gradient of {} bytes", gradient.size());
      optimizer->apply({.lr = kLearningRate}, values, aligned(gradient, scratch), {}, values);
    }
    const bool answers = header.operation != PlainHeader::push;
    socket.send(worker, zmq::send_flags::sndmore);
    socket.send(zmq::buffer(&header, sizeof header), answers ? zmq::send_flags::sndmore : zmq::send_flags::none);
    if (answers) socket.send(zmq::buffer(values.data(), values.size_bytes()), zmq::send_flags::none);
  }
}

std::unique_ptr<Exchange> connect_zmq(const std::string& endpoint, const std::vector<std::size_t>& elements) {
  return std::make_unique<ZmqExchange>(endpoint, elements);
}

}  // namespace psring::bench
