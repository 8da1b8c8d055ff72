// Refused clients are counted, reported in few lines, and cost a listener a bounded number of connections.
#include <cstdint>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <zmq.h>

#include <psring/common/net/refusals.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/zmq/gate.h>
#include <psring/tests/support/hand_clock.h>

using namespace psring;
using namespace psring::net;

namespace {

/// Waits until the other end hangs up; false where it does not.
bool hung_up(const Fd& socket) {
  pollfd item{socket.get(), POLLIN, 0};
  char byte = 0;
  while (::poll(&item, 1, 20'000) > 0) {
    const ssize_t size = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno == ECONNRESET)) return true;
  }
  return false;
}

bool is_open(const Fd& socket) {
  char byte = 0;
  ssize_t size = 1;
  while (size > 0) size = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);  // ZMTP's greeting
  return size < 0 && errno == EAGAIN;
}

/// Whether the kernel tells one connection from another. QEMU does not pass the question on.
bool has_cookies() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0) return true;
  WARN("no SO_COOKIE: a gate cannot tell who was trusted");
  return false;
}

struct Port {
  explicit Port(const ZmqGate::Limits& limits = {})
      : gate(std::make_unique<ZmqGate>(context, router, &refusals, limits)) {
    REQUIRE(zmq_bind(router.handle(), "tcp://127.0.0.1:0") == 0);
    endpoint = router.get_text(ZMQ_LAST_ENDPOINT).substr(6);
  }
  Fd connect() const {
    Fd socket = start_connect(endpoint);
    pollfd item{socket.get(), POLLOUT, 0};
    REQUIRE(::poll(&item, 1, 20'000) == 1);
    REQUIRE(connect_error(socket) == 0);
    return socket;
  }
  /// Takes a client's message, which counts as its proof, and answers.
  void trust_next() {
    zmq_msg_t name;
    zmq_msg_t part;
    zmq_msg_init(&name);
    zmq_msg_init(&part);
    REQUIRE(zmq_msg_recv(&name, router.handle(), 0) >= 0);
    REQUIRE(zmq_msg_recv(&part, router.handle(), 0) >= 0);
    gate->trust(connection_of(part));
    REQUIRE(zmq_msg_send(&name, router.handle(), ZMQ_SNDMORE) >= 0);
    REQUIRE(zmq_send(router.handle(), "yes", 3, 0) == 3);
    zmq_msg_close(&part);
  }
  test::HandClock clock{Moment{} + std::chrono::hours(1)};
  Refusals refusals{"port", clock, [](const std::string&) {}};
  ZmqContext context;
  ZmqSocket router{context.handle(), ZMQ_ROUTER};
  std::unique_ptr<ZmqGate> gate;
  std::string endpoint;
};

}  // namespace

TEST_CASE("refusals are told of in one line a second, and none is left out") {
  test::HandClock clock{Moment{} + std::chrono::hours(1)};
  std::vector<std::string> lines;
  {
    Refusals refusals("server 1", clock, [&](const std::string& line) { lines.push_back(line); });
    for (int i = 0; i < 1000; ++i) refusals.add(Refusal::wrong_key);
    CHECK(lines ==
          std::vector<std::string>{"server 1: refused 1 connections that did not prove the job's key, 1 in all"});
    clock.at += std::chrono::milliseconds(999);
    refusals.add(Refusal::wrong_key);
    CHECK(lines.size() == 1);
    clock.at += std::chrono::milliseconds(1);
    refusals.add(Refusal::wrong_key, 8);
    REQUIRE(lines.size() == 2);
    CHECK(lines[1] == "server 1: refused 1008 connections that did not prove the job's key, 1009 in all");
    refusals.add(Refusal::wrong_key);
    CHECK(refusals.total() == 1010);
  }
  REQUIRE(lines.size() == 3);
  CHECK(lines[2] == "server 1: refused 1 connections that did not prove the job's key, 1010 in all");
}

TEST_CASE("no line speaks of the key if no proof was wrong") {
  test::HandClock clock{Moment{} + std::chrono::hours(1)};
  std::vector<std::string> lines;
  Refusals refusals("server 1", clock, [&](const std::string& line) { lines.push_back(line); });
  refusals.add(Refusal::unfinished, 3);
  refusals.add(Refusal::wrong_key);
  CHECK(lines == std::vector<std::string>{
                     "server 1: closed 3 connections whose handshake was not finished, 3 in all",
                     "server 1: refused 1 connections that did not prove the job's key, 1 in all",
                 });
  CHECK(refusals.total() == 4);
}

TEST_CASE("nobody refused, nothing said") {
  test::HandClock clock{Moment{} + std::chrono::hours(1)};
  const Refusals refusals("server 1", clock, [](const std::string&) { FAIL("a line"); });
  CHECK(refusals.total() == 0);
}

TEST_CASE("of strangers at a port of ZeroMQ's so many stay, and the oldest go") {
  Port port;
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < ZmqGate::kMost + 40; ++i) strangers.push_back(port.connect());
  for (std::size_t i = 0; i < 40; ++i) CHECK(hung_up(strangers[i]));
  CHECK(port.refusals.total() == 40);
  CHECK(is_open(strangers.back()));
}

TEST_CASE("a stranger that says nothing is hung up on") {
  const Port port({.patience = std::chrono::milliseconds(1)});
  CHECK(hung_up(port.connect()));
  CHECK(port.refusals.total() == 1);
}

TEST_CASE("who has proved the key stays, and who leaves by himself is counted once") {
  if (!has_cookies()) return;
  Port port;
  ZmqSocket dealer(port.context.handle(), ZMQ_DEALER);
  dealer.set(ZMQ_LINGER, 0);
  REQUIRE(zmq_connect(dealer.handle(), ("tcp://" + port.endpoint).c_str()) == 0);
  REQUIRE(zmq_send(dealer.handle(), "here", 4, 0) == 4);
  zmq_msg_t part;
  zmq_msg_init(&part);
  REQUIRE(zmq_msg_recv(&part, port.router.handle(), 0) >= 0);
  const std::vector<char> name(static_cast<char*>(zmq_msg_data(&part)),
                               static_cast<char*>(zmq_msg_data(&part)) + zmq_msg_size(&part));
  REQUIRE(zmq_msg_recv(&part, port.router.handle(), 0) == 4);
  port.gate->trust(connection_of(part));
  zmq_msg_close(&part);
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < ZmqGate::kMost + 5; ++i) strangers.push_back(port.connect());
  for (std::size_t i = 0; i < 5; ++i) CHECK(hung_up(strangers[i]));
  REQUIRE(zmq_send(port.router.handle(), name.data(), name.size(), ZMQ_SNDMORE) >= 0);
  REQUIRE(zmq_send(port.router.handle(), "still", 5, 0) == 5);
  char answer[8];
  CHECK(zmq_recv(dealer.handle(), answer, sizeof answer, 0) == 5);
}

// The gate's thread may read that a client was accepted only after the client was trusted and has sent a lot.
TEST_CASE("a client that was trusted may send a lot at once, however late the gate hears of it") {
  if (!has_cookies()) return;
  Port port({.most_bytes = 1000});
  port.router.set(ZMQ_RCVTIMEO, 20'000);
  const std::vector<char> many(20'000);
  std::vector<char> part(many.size());
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    ZmqSocket client(port.context.handle(), ZMQ_DEALER);
    client.set(ZMQ_LINGER, 0);
    REQUIRE(zmq_connect(client.handle(), ("tcp://" + port.endpoint).c_str()) == 0);
    REQUIRE(zmq_send(client.handle(), "here", 4, 0) == 4);
    port.trust_next();
    REQUIRE(zmq_recv(client.handle(), part.data(), part.size(), 0) == 3);
    REQUIRE(zmq_send(client.handle(), many.data(), many.size(), 0) == static_cast<int>(many.size()));
    REQUIRE(zmq_recv(port.router.handle(), part.data(), part.size(), 0) > 0);
    REQUIRE(zmq_recv(port.router.handle(), part.data(), part.size(), 0) == static_cast<int>(many.size()));
  }
}
