#include <algorithm>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/plain_units.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/optim/rules.h>

namespace psring::bench {
namespace {

void check_call(bool ok, const char* operation) {
  if (!ok) fail(ErrorKind::peer_lost, "raw socket: {}: {}", operation, std::strerror(errno));
}

void write_all(const Fd& socket, const void* head, std::size_t head_bytes, std::span<const float> payload) {
  iovec parts[2] = {{const_cast<void*>(head), head_bytes}, {const_cast<float*>(payload.data()), payload.size_bytes()}};
  for (iovec* part = parts; part != parts + 2;) {
    const ssize_t sent = ::writev(socket.get(), part, static_cast<int>(parts + 2 - part));
    check_call(sent >= 0, "write");
    auto left = static_cast<std::size_t>(sent);
    for (; part != parts + 2 && left >= part->iov_len; ++part) left -= part->iov_len;
    if (part == parts + 2) return;
    part->iov_base = static_cast<std::byte*>(part->iov_base) + left;
    part->iov_len -= left;
  }
}

/// Returns false if the other side hung up before the first byte.
bool read_all(const Fd& socket, void* into, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = ::recv(socket.get(), static_cast<std::byte*>(into) + done, bytes - done, 0);
    check_call(got >= 0, "read");
    if (got == 0) {
      if (done == 0) return false;
      fail(ErrorKind::peer_lost, "raw socket: the other side has hung up");
    }
    done += static_cast<std::size_t>(got);
  }
  return true;
}

void no_delay(const Fd& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

class SocketExchange final : public Exchange {
 public:
  SocketExchange(const std::string& endpoint, const std::vector<std::size_t>& elements)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), gradients_(elements, 0), parameters_(elements, 0) {
    const sockaddr_in address = loopback(static_cast<std::uint16_t>(std::stoi(endpoint)));
    check_call(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
    no_delay(socket_);
  }

  std::span<float> gradient(std::size_t unit) override { return gradients_[unit]; }
  std::span<const float> parameters(std::size_t unit) override { return parameters_[unit]; }
  void push_then_pull(std::size_t unit) override {
    PlainHeader header = ask(PlainHeader::push, unit, gradients_[unit]);
    expect(&header, sizeof header);
    ask(PlainHeader::pull, unit, {});
    expect(parameters_[unit].data(), parameters_[unit].size_bytes());
  }
  void push_pull(std::size_t unit) override {
    ask(PlainHeader::push_pull, unit, gradients_[unit]);
    expect(parameters_[unit].data(), parameters_[unit].size_bytes());
  }

 private:
  PlainHeader ask(PlainHeader::Operation operation, std::size_t unit, std::span<const float> payload) {
    const PlainHeader header{operation, static_cast<std::uint32_t>(unit), 0, gradients_[unit].size()};
    write_all(socket_, &header, sizeof header, payload);
    return header;
  }
  void expect(void* into, std::size_t bytes) {
    if (!read_all(socket_, into, bytes)) fail(ErrorKind::peer_lost, "raw socket: the server has hung up");
  }

  Fd socket_;
  PlainUnits gradients_;
  PlainUnits parameters_;
};

}  // namespace

void serve_socket(const ServerPlan& plan) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  check_call(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0, "bind");
  check_call(::listen(listener.get(), 1) == 0, "listen");
  check_call(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  publish_endpoint(plan.endpoint_fd, std::to_string(ntohs(address.sin_port)));
  const Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  check_call(static_cast<bool>(socket), "accept");
  no_delay(socket);

  const auto optimizer = optim::make_sgd({});
  PlainUnits parameters(plan.elements, kStart);
  // A single buffer, which is reused.
  PlainUnits received({*std::max_element(plan.elements.begin(), plan.elements.end())}, 0);
  PlainHeader header;
  while (read_all(socket, &header, sizeof header)) {
    const std::span<float> values = parameters.part(header);
    if (header.operation != PlainHeader::pull) {
      const std::span<float> gradient = received[0].first(values.size());
      read_all(socket, gradient.data(), gradient.size_bytes());
      optimizer->apply({.lr = kLearningRate}, values, gradient, {}, values);
    }
    if (header.operation == PlainHeader::push) {
      write_all(socket, &header, sizeof header, {});
    } else {
      write_all(socket, nullptr, 0, values);
    }
  }
}

std::unique_ptr<Exchange> connect_socket(const std::string& endpoint, const std::vector<std::size_t>& elements) {
  return std::make_unique<SocketExchange>(endpoint, elements);
}

}  // namespace psring::bench
