// Tests who may link by TCP: keys, encryption, strangers, and peers that break the protocol.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <sys/socket.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/stream_cipher.h>
#include <psring/tests/support/tcp_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

Fd raw_connection(const std::string& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void write_all(const Fd& fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // hung up on
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

/// Reads until the other end hangs up, and at most `most` bytes.
std::vector<std::byte> read_bytes(const Fd& fd, std::size_t most) {
  std::vector<std::byte> bytes(most);
  std::size_t size = 0;
  while (size < most) {
    const ssize_t got = ::recv(fd.get(), bytes.data() + size, most - size, 0);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  bytes.resize(size);
  return bytes;
}

FrameType answer_type(const Fd& fd) {
  const auto bytes = read_bytes(fd, 2000);
  return decode(std::span(bytes).first(std::min(bytes.size(), kHeaderBytes))).type;
}

void write_half(const Fd& fd, const FrameHeader& header) {
  const auto bytes = encode(header);
  write_all(fd, std::span(bytes).first(kHeaderBytes / 2));
}

void write_frame(const Fd& fd, const FrameHeader& header, std::span<const std::byte> payload) {
  write_all(fd, encode(header));
  write_all(fd, payload);
}

/// A client by hand, up to the open link; then it says what it likes.
struct Hostile {
  Hostile(const JobKey& key, Peer self, Peer server, const std::string& endpoint, bool encrypt = false)
      : socket(raw_connection(endpoint)), handshake(key, {self, 0}, server, endpoint, random_nonce()) {
    HandshakeFrame hello = handshake.start();
    hello.header.end = 1;
    hello.header.version = encrypt ? 1 : 0;
    std::optional<HandshakeFrame> frame = hello;
    while (frame) {
      write_frame(socket, frame->header, frame->payload);
      const FrameHeader header = decode(read_bytes(socket, kHeaderBytes));
      frame = handshake.on_frame(header, read_bytes(socket, header.payload_bytes));
    }
  }
  Fd socket;
  ClientHandshake handshake;
};

/// A listener in a thread of its own, which answers each frame with the same payload.
struct Echo {
  explicit Echo(bool encrypt = false, Nanoseconds handshake_timeout = std::chrono::seconds(5))
      : channel(make_tcp_channel(
            {.key = key, .self = {kServer, 0}, .encrypt = encrypt, .handshake_timeout = handshake_timeout})),
        endpoint(channel->listen("127.0.0.1")),
        thread([this](const std::stop_token& stop) { run(stop); }) {}

  void run(const std::stop_token& stop) {
    std::vector<Message> held;
    while (!stop.stop_requested()) {
      try {
        auto message = receive(*channel, in(0.01));
        if (!message) continue;
        ++frames;
        const FrameHeader answer =
            header_of(key, kServer, FrameType::values, message->payload.size(), message->header.step);
        channel->send(message->header.sender(), answer, message->payload);
        held.push_back(std::move(*message));
      } catch (const Error& error) {
        ++errors;
        last_kind = error.kind();
      }
    }
  }
  void require_echo(Channel& client, Peer self, std::size_t bytes) const {
    const auto sent = pattern(bytes);
    client.send(kServer, header_of(key, self, FrameType::push, bytes, 7), sent);
    const Message answer = next(client);
    CHECK(answer.header.type == FrameType::values);
    CHECK(answer.header.step == 7);
    CHECK(same(answer.payload, sent));
  }
  std::unique_ptr<TcpChannel> client(Peer self) const {
    auto linked = make_tcp_channel({.key = key, .self = {self, 0}});
    linked->connect({{kServer, endpoint}}, in(20));
    return linked;
  }

  JobKey key = JobKey::generate();
  std::atomic<int> frames{0};
  std::atomic<int> errors{0};
  std::atomic<ErrorKind> last_kind{ErrorKind::bug};
  std::unique_ptr<TcpChannel> channel;
  std::string endpoint;
  std::jthread thread;
};

}  // namespace

TEST_CASE("another job's key is told in one line") {
  Echo echo;
  const auto wrong = make_tcp_channel({.key = JobKey::generate(), .self = {worker(0), 0}});
  const Error error = error_of([&] { wrong->connect({{kServer, echo.endpoint}}, in(20)); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::StartsWith("server 0 at " + echo.endpoint));
  CHECK_FALSE(wrong->reaches(kServer));
  echo.require_echo(*echo.client(worker(0)), worker(0), 5000);
}

TEST_CASE("one side encrypts and the other does not") {
  const bool encrypt = GENERATE(false, true);
  const Echo echo(encrypt);
  const auto other = make_tcp_channel({.key = echo.key, .self = {worker(0), 0}, .encrypt = !encrypt});
  const Error error = error_of([&] { other->connect({{kServer, echo.endpoint}}, in(20)); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::Contains("--encrypt"));
}

TEST_CASE("another peer at the endpoint than was meant, or none, or one that says nothing") {
  const Echo echo;
  const auto client = make_tcp_channel({.key = echo.key, .self = {worker(0), 0}});
  const Error other = error_of([&] { client->connect({{{Role::server, 3}, echo.endpoint}}, in(20)); });
  CHECK(other.kind() == ErrorKind::protocol);
  CHECK_THAT(other.what(), Catch::Contains("expected server 3") && Catch::Contains("found server 0"));
  const Error none = error_of([&] { client->connect({{kServer, "127.0.0.1:1"}}, in(20)); });
  CHECK(none.kind() == ErrorKind::peer_lost);
  CHECK(std::string(none.what()) == "server 0 at 127.0.0.1:1: Connection refused");
  const auto silent = make_tcp_channel({.key = echo.key, .self = {kServer, 0}});
  const std::string endpoint = silent->listen("127.0.0.1");
  const Error late = error_of([&] { client->connect({{kServer, endpoint}}, in(0.1)); });
  CHECK(late.kind() == ErrorKind::timeout);
  CHECK(std::string(late.what()) == "no link to server 0 at " + endpoint + ": it does not answer");
  const Error missing = error_of([&] { silent->await_links({worker(4)}, in(0.1)); });
  CHECK(missing.kind() == ErrorKind::timeout);
  CHECK_THAT(missing.what(), Catch::StartsWith("worker 4 "));
  for (const char* bad : {"nonsense", "127.0.0.1:", ":5", ""})
    CHECK(error_of([&] { client->connect({{kServer, bad}}, in(1)); }).kind() == ErrorKind::data);
  CHECK(error_of([&] { client->listen("192.0.2.1"); }).kind() == ErrorKind::data);
  const auto port = static_cast<std::uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1)));
  const auto second = make_tcp_channel({.key = echo.key, .self = {kServer, 0}});
  CHECK_THAT(error_of([&] { second->listen("127.0.0.1", port); }).what(), Catch::Contains("Address already in use"));
  CHECK(error_of([&] {
          make_tcp_channel({.key = echo.key, .self = {worker(0), 0}, .streams = 17});
        }).kind() == ErrorKind::usage);
}

TEST_CASE("strangers' bytes do nothing, and silence is hung up on") {
  const Echo echo(false, std::chrono::milliseconds(200));
  const auto garbage = pattern(100'000);
  const Fd loud = raw_connection(echo.endpoint);
  write_all(loud, garbage);
  CHECK(read_bytes(loud, 1000).empty());

  // A whole and valid push in a worker's name, from someone who has proved nothing, is refused aloud.
  const Fd forger = raw_connection(echo.endpoint);
  write_frame(forger, header_of(echo.key, worker(0), FrameType::push, 5), std::span(garbage).first(5));
  CHECK(answer_type(forger) == FrameType::refused);

  // A payload that is announced but not allowed yet; a header that stops half way; nothing at all.
  const Fd large = raw_connection(echo.endpoint);
  write_all(large, encode(header_of(echo.key, worker(0), FrameType::hello, kMaxPayloadBytes)));
  CHECK(read_bytes(large, 1000).empty());
  const Fd half = raw_connection(echo.endpoint);
  write_half(half, header_of(echo.key, worker(0), FrameType::hello, 32));
  const Fd silent = raw_connection(echo.endpoint);
  CHECK(read_bytes(half, 1000).empty());
  CHECK(read_bytes(silent, 1000).empty());

  // A stream that is none of its link's.
  const Fd odd = raw_connection(echo.endpoint);
  HandshakeFrame hello = ClientHandshake(echo.key, {worker(0), 0}, kServer, "", random_nonce()).start();
  hello.header.set_range({2, 2});
  write_frame(odd, hello.header, hello.payload);
  CHECK(answer_type(odd) == FrameType::refused);

  const auto client = echo.client(worker(0));
  echo.require_echo(*client, worker(0), 5000);
  CHECK(echo.errors == 0);
  CHECK(echo.frames == 1);
}

TEST_CASE("more strangers than are kept do not keep a worker out") {
  const Echo echo;
  std::vector<Fd> strangers;
  strangers.reserve(300);
  for (int i = 0; i < 300; ++i) strangers.push_back(raw_connection(echo.endpoint));
  const auto client = echo.client(worker(0));
  echo.require_echo(*client, worker(0), 5000);
  CHECK(read_bytes(strangers[0], 1).empty());  // the oldest had to go
}

TEST_CASE("a peer that breaks the protocol costs its link, no other") {
  const Echo echo;
  const auto honest = echo.client(worker(0));
  const auto break_it = GENERATE(
      as<std::function<void(const Hostile&, const JobKey&)>>(),
      [](const Hostile& h, const JobKey&) { write_all(h.socket, pattern(1000)); },
      [](const Hostile& h, const JobKey& key) {  // another's name
        write_frame(h.socket, header_of(key, worker(0), FrameType::push, 0), {});
      },
      [](const Hostile& h, const JobKey& key) {  // a handshake's frame
        write_frame(h.socket, header_of(key, worker(5), FrameType::accepted, 0), {});
      },
      [](const Hostile& h, const JobKey& key) {  // more than is allowed
        FrameHeader push = header_of(key, worker(5), FrameType::push, kMaxPayloadBytes + 1);
        write_frame(h.socket, push, {});
      },
      [](const Hostile& h, const JobKey&) {  // another job
        const JobKey other = JobKey::generate();
        write_frame(h.socket, header_of(other, worker(5), FrameType::push, 0), {});
      });
  const Hostile hostile(echo.key, worker(5), kServer, echo.endpoint);
  break_it(hostile, echo.key);
  CHECK(read_bytes(hostile.socket, 1000).empty());
  for (const Moment deadline = in(20); echo.errors == 0 && SystemClock().now() < deadline;) std::this_thread::yield();
  CHECK(echo.errors == 1);
  CHECK(echo.last_kind == ErrorKind::protocol);
  echo.require_echo(*honest, worker(0), 5000);
}

TEST_CASE("a peer that ends in the middle of a frame, with frames queued for it") {
  const Pair pair;
  {
    std::jthread attendant([&] { pair.low->await_links({worker(2)}, in(20)); });
    const Hostile half(pair.key, worker(2), worker(0), pair.endpoint);
    attendant.join();
    write_half(half.socket, header_of(pair.key, worker(2), FrameType::push, 1000));
    static const auto large = pattern(kMaxPayloadBytes);
    while (pair.low->in_flight_bytes(worker(2)) == 0)
      pair.low->send(worker(2), header_of(pair.key, worker(0), FrameType::push, large.size()), large);
  }
  CHECK(error_of([&] { receive(*pair.low, in(20)); }).kind() == ErrorKind::peer_lost);
  pair.send(1, pattern(10), 3);
  CHECK(next(*pair.low).header.step == 3);
}

TEST_CASE("an encrypted stream that is changed, cut or repeated ends the link") {
  const Echo echo(true);
  // A relay that changes one byte of what a client sends behind its handshake: of a header, a payload, a seal.
  const JobKey& key = echo.key;
  const std::size_t at = GENERATE(24 + 5, 24 + 130, 24 + 145 + 10, 24 + 145 + 1000 + 5);
  CAPTURE(at);
  const Hostile hostile(key, worker(5), kServer, echo.endpoint, true);
  Sealer sealer(hostile.handshake.secret("tcp to server 0000000000000000 00/01 "));
  const auto payload = pattern(1000);
  std::vector<std::byte> wire(24 + 145 + 1017);
  std::memcpy(wire.data(), sealer.head().data(), 24);
  sealer.seal(encode(header_of(key, worker(5), FrameType::push, 1000)), std::span(wire).subspan(24, 145));
  sealer.seal(payload, std::span(wire).subspan(24 + 145));
  SECTION("as it is, it is taken") {
    write_all(hostile.socket, wire);
    CHECK(read_bytes(hostile.socket, wire.size()).size() == wire.size());
    SECTION("but not twice") {
      write_all(hostile.socket, std::span(wire).subspan(24));
      CHECK(read_bytes(hostile.socket, 1).empty());
    }
  }
  SECTION("changed, it is not") {
    wire[at] ^= std::byte{1};
    write_all(hostile.socket, wire);
    CHECK(read_bytes(hostile.socket, wire.size()).size() == 24);  // the other direction's head
    for (const Moment deadline = in(20); echo.errors == 0 && SystemClock().now() < deadline;) std::this_thread::yield();
    CHECK(echo.last_kind == ErrorKind::protocol);
  }
}

TEST_CASE("each direction of each link is sealed with another key, and nothing passes in the clear") {
  const JobKey key = JobKey::generate();
  const Nonce nonce = random_nonce();
  const auto secrets = [&] {
    ClientHandshake client(key, {worker(1), 0}, kServer, "", nonce);
    ServerHandshake server(key, {kServer, 0}, random_nonce());
    std::optional<HandshakeFrame> frame = client.start();
    while (frame) {
      const HandshakeFrame answer = server.on_frame(frame->header, frame->payload);
      frame = client.on_frame(answer.header, answer.payload);
    }
    CHECK(client.secret("a") == server.secret("a"));
    CHECK(client.secret("b") == server.secret("b"));
    return std::array{client.secret("a"), client.secret("b")};
  };
  const auto first = secrets();
  const auto second = secrets();
  CHECK(first[0] != first[1]);
  CHECK(first[0] != second[0]);
  CHECK(first[1] != second[1]);

  Sealer sealer(first[0]);
  Opener opener(first[0], sealer.head());
  const auto plain = pattern(100);
  std::vector<std::byte> sealed(100 + kSealBytes);
  std::vector<std::byte> opened(100);
  sealer.seal(plain, sealed);
  CHECK_FALSE(std::search(sealed.begin(), sealed.end(), plain.begin(), plain.begin() + 8) != sealed.end());
  opener.open(sealed, opened);
  CHECK(opened == plain);
  CHECK_THROWS_AS(opener.open(sealed, opened), Error);  // it was the first chunk, not the second
  Opener wrong(second[0], sealer.head());
  CHECK_THROWS_AS(wrong.open(sealed, opened), Error);
}
