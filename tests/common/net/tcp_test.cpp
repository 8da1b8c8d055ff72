// Tests the promises of TCP links beyond every transport: places, streams, encryption, strangers, and ends.
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/stream.h>
#include <psring/common/net/tcp/stream_cipher.h>
#include <psring/tests/support/tcp_cluster.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

using std::chrono::milliseconds;

/// As PollTransport waits, without the spinning.
std::optional<Message> receive(Channel& channel, Moment deadline) {
  for (;;) {
    if (auto message = channel.try_receive()) return message;
    const auto left = std::chrono::ceil<milliseconds>(deadline - SystemClock().now());
    if (left <= milliseconds(0)) return std::nullopt;
    if (!channel.arm()) continue;
    pollfd item{channel.wait_fd(), POLLIN, 0};
    if (::poll(&item, 1, static_cast<int>(left.count())) > 0) channel.woken();
  }
}

Message next(Channel& channel) {
  auto message = receive(channel, in(20));
  REQUIRE(message);
  return std::move(*message);
}

FrameHeader header_of(const JobKey& key, Peer self, FrameType type, std::size_t payload_bytes, std::uint64_t step = 0) {
  FrameHeader header;
  header.type = type;
  header.dtype = DType::u8;
  header.job = key.job_id();
  header.sender_role = self.role;
  header.sender_rank = self.rank;
  header.payload_bytes = payload_bytes;
  header.step = step;
  header.sequence = step;
  return header;
}

std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed = 1) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

/// Two workers; worker 1 has connected to worker 0.
struct Pair {
  explicit Pair(std::size_t streams = 1, bool encrypt = false)
      : low(make_tcp_channel({.key = key, .self = {worker(0), 0}, .encrypt = encrypt})),
        high(make_tcp_channel({.key = key, .self = {worker(1), 0}, .encrypt = encrypt, .streams = streams})),
        endpoint(low->listen("127.0.0.1")) {
    std::jthread other([&] { low->await_links({worker(1)}, in(20)); });
    high->connect({{worker(0), endpoint}}, in(20));
  }

  void send(std::uint32_t from, std::span<const std::byte> payload, std::uint64_t step = 0) const {
    const Peer self = worker(from);
    (from == 0 ? low : high)
        ->send(worker(1 - from), header_of(key, self, FrameType::push, payload.size(), step), payload);
  }

  JobKey key = JobKey::generate();
  std::unique_ptr<TcpChannel> low;
  std::unique_ptr<TcpChannel> high;
  std::string endpoint;
};

/// Both ends in one thread: what one sends is received by the other as it goes.
Message across(const Pair& pair, std::uint32_t from) {
  Channel& sender = from == 0 ? *pair.low : *pair.high;
  Channel& receiver = from == 0 ? *pair.high : *pair.low;
  for (const Moment deadline = in(20); SystemClock().now() < deadline;) {
    if (auto message = receiver.try_receive()) return std::move(*message);
    if (sender.try_receive()) throw std::logic_error("a frame came the other way");
  }
  throw std::logic_error("nothing came");
}

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

TEST_CASE("one link serves both directions, at the same time") {
  const std::size_t streams = GENERATE(1, 2, 5);
  const bool encrypt = GENERATE(false, true);
  CAPTURE(streams, encrypt);
  Pair pair(streams, encrypt);
  CHECK(pair.low->reaches(worker(1)));
  CHECK(pair.high->reaches(worker(0)));
  CHECK_FALSE(pair.low->reaches(worker(0)));
  const std::string extra = (streams > 1 ? fmt::format(", {} streams", streams) : "") + (encrypt ? ", encrypted" : "");
  CHECK(pair.high->describe(worker(0)) == "tcp " + pair.endpoint + extra);
  CHECK_THAT(pair.low->describe(worker(1)), Catch::StartsWith("tcp 127.0.0.1:") && Catch::EndsWith(extra));
  // More than the kernel takes, both ways.
  constexpr std::uint64_t kFrames = 40;
  const auto large = pattern(3'000'000);
  const auto bytes_of = [&](std::uint64_t i) { return i % 3 == 0 ? i : large.size() - i * 1001; };
  const auto exchange = [&](std::uint32_t self) {
    Channel& channel = self == 0 ? *pair.low : *pair.high;
    for (std::uint64_t i = 0; i < kFrames; ++i) pair.send(self, std::span(large).first(bytes_of(i)), i);
    bool good = true;
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      const auto message = receive(channel, in(30));
      good = good && message && message->header.step == i &&
             same(message->payload, std::span(large).first(bytes_of(i))) &&
             reinterpret_cast<std::uintptr_t>(message->payload.data()) % 64 == 0;
    }
    while (channel.in_flight_bytes(worker(1 - self)) > 0) receive(channel, in(0.01));
    return good;
  };
  bool good_low = false;
  std::jthread other([&] { good_low = exchange(0); });
  CHECK(exchange(1));
  other.join();
  CHECK(good_low);
}

TEST_CASE("what the kernel does not take is in flight, and the small is copied") {
  const Pair pair;
  const auto large = pattern(kMaxPayloadBytes);
  std::size_t sent = 0;
  while (pair.high->in_flight_bytes(worker(0)) == 0) {
    pair.send(1, large, sent++);
    REQUIRE(sent < 64);
  }
  CHECK(pair.high->in_flight_bytes(worker(0)) <= kHeaderBytes + large.size());
  {
    auto small = pattern(kCopiedBytes);
    pair.send(1, small, sent);
    std::fill(small.begin(), small.end(), std::byte{0});
  }
  for (std::size_t i = 0; i < sent; ++i) {
    const Message message = across(pair, 1);
    CHECK(message.header.step == i);
    CHECK(same(message.payload, large));
  }
  CHECK(same(across(pair, 1).payload, pattern(kCopiedBytes)));
  CHECK(pair.high->in_flight_bytes(worker(0)) == 0);
  // Not before that: a sender with priorities is told that there is room.
  CHECK_FALSE(pair.high->arm());
  CHECK(pair.high->arm());
}

TEST_CASE("until the kernel has the last byte of a frame, it is counted") {
  const bool encrypt = GENERATE(false, true);
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const int small = 4096;
  ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const auto pool = std::make_shared<BlockPool>();
  TcpStream sender(Fd{ends[0]}, pool);
  TcpStream receiver(Fd{ends[1]}, pool);
  if (encrypt) {
    const JobKey key = JobKey::generate();
    const Mac there = key.link_secret({});
    const Mac back = key.mac({});
    sender.encrypt(there, back);
    receiver.encrypt(back, there);
  }
  const auto data = pattern(100'000);  // one sealed chunk
  sender.send(header_of(JobKey::generate(), worker(0), FrameType::push, data.size()), data);
  CHECK(sender.unsent());
  const Place nowhere = [](const FrameHeader&) { return std::span<std::byte>(); };
  std::optional<Message> message;
  while (!message) {
    CHECK(sender.unsent() == (sender.unsent_bytes() > 0));
    sender.on_events(EPOLLOUT);
    sender.flush();
    receiver.try_anyway();
    message = receiver.receive(nowhere);
  }
  CHECK(same(message->payload, data));
  CHECK(sender.unsent_bytes() == 0);
}

TEST_CASE("payloads arrive in the places that they are given") {
  const std::size_t streams = GENERATE(1, 3);
  const bool encrypt = GENERATE(false, true);
  CAPTURE(streams, encrypt);
  const Pair pair(streams, encrypt);
  const auto data = pattern(2'000'000);
  std::vector<std::byte> whole(data.size());
  pair.low->place_payloads([&](const FrameHeader& header) -> std::span<std::byte> {
    if (header.unit == 1) return {};
    return std::span(whole).subspan(header.begin, header.payload_bytes);
  });
  constexpr std::size_t kPiece = 300'000;
  for (std::size_t begin = 0; begin < data.size(); begin += kPiece) {
    const auto piece = std::span(data).subspan(begin, std::min(kPiece, data.size() - begin));
    FrameHeader header = header_of(pair.key, worker(1), FrameType::push, piece.size());
    header.set_range({begin, begin + piece.size()});
    pair.high->send(worker(0), header, piece);
    FrameHeader elsewhere = header_of(pair.key, worker(1), FrameType::push, 100);
    elsewhere.unit = 1;
    pair.high->send(worker(0), elsewhere, std::span(data).first(100));
  }
  for (std::size_t begin = 0; begin < data.size(); begin += kPiece) {
    const Message placed = across(pair, 1);
    CHECK(placed.payload.data() == whole.data() + begin);
    CHECK_FALSE(placed.holder);
    const Message pooled = across(pair, 1);
    CHECK(pooled.holder);
    CHECK(same(pooled.payload, std::span(data).first(100)));
  }
  CHECK(same(whole, data));
}

TEST_CASE("memory of received payloads is used again") {
  const Pair pair;
  const auto data = pattern(1 << 20);
  const std::byte* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    pair.send(1, data);
    const Message message = across(pair, 1);
    if (first == nullptr) first = message.payload.data();
    CHECK(message.payload.data() == first);
  }
}

TEST_CASE("workers link to all lower ranks, all at once") {
  const JobKey key = JobKey::generate();
  constexpr std::uint32_t kWorkers = 9;
  const std::size_t streams = GENERATE(1, 2);
  std::vector<std::unique_ptr<TcpChannel>> channels;
  std::map<Peer, std::string> endpoints;
  for (std::uint32_t r = 0; r < kWorkers; ++r) {
    channels.push_back(make_tcp_channel({.key = key, .self = {worker(r), 0}, .streams = streams}));
    endpoints[worker(r)] = channels.back()->listen("127.0.0.1");
  }
  std::atomic<int> good{0};
  std::vector<std::jthread> threads;
  for (std::uint32_t r = 0; r < kWorkers; ++r)
    threads.emplace_back([&, r] {
      TcpChannel& channel = *channels[r];
      std::map<Peer, std::string> lower(endpoints.begin(), endpoints.find(worker(r)));
      std::set<Peer> others;
      for (std::uint32_t i = 0; i < kWorkers; ++i)
        if (i != r) others.insert(worker(i));
      channel.connect(lower, in(60));
      channel.await_links(others, in(60));
      const auto data = pattern(50'000, r);
      for (const Peer other : others)
        channel.send(other, header_of(key, worker(r), FrameType::push, data.size()), data);
      while (!others.empty()) {
        const auto message = receive(channel, in(60));
        if (!message || !same(message->payload, pattern(50'000, message->header.sender_rank))) return;
        others.erase(message->header.sender());
      }
      ++good;
    });
  threads.clear();
  CHECK(good == kWorkers);
}

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
  const Echo echo(false, milliseconds(200));
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

TEST_CASE("a lost peer is told once, after what it had sent") {
  const std::size_t streams = GENERATE(1, 3);
  const bool encrypt = GENERATE(false, true);
  CAPTURE(streams, encrypt);
  Pair pair(streams, encrypt);
  const std::string name = pair.low->describe(worker(1)).substr(4);
  const auto data = pattern(10'000);
  for (std::uint64_t i = 0; i < 5; ++i) pair.send(1, data, i);
  pair.send(0, data);  // which it does not read: its end is a reset
  pair.high.reset();
  pair.send(0, data);  // to nobody, but that is not known yet
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Message message = next(*pair.low);
    CHECK(message.header.step == i);
    CHECK(same(message.payload, data));
  }
  const Error error = error_of([&] { receive(*pair.low, in(20)); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK_THAT(error.what(), Catch::StartsWith("worker 1 at 127.0.0.1:"));
  CHECK_FALSE(pair.low->reaches(worker(1)));
  CHECK(pair.low->in_flight_bytes(worker(1)) == 0);
  CHECK_FALSE(receive(*pair.low, in(0.01)));
  CHECK(error_of([&] { pair.send(0, data); }).kind() == ErrorKind::peer_lost);
  // It may come again.
  pair.high = make_tcp_channel({.key = pair.key, .self = {worker(1), 0}, .encrypt = encrypt, .streams = streams});
  std::jthread other([&] { pair.low->await_links({worker(1)}, in(20)); });
  pair.high->connect({{worker(0), pair.endpoint}}, in(20));
  other.join();
  pair.send(1, data, 9);
  CHECK(next(*pair.low).header.step == 9);
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

TEST_CASE("who is linked already is not linked twice, but comes back as a later incarnation") {
  Pair pair;
  const auto again = [&](std::uint32_t incarnation) {
    auto second = make_tcp_channel({.key = pair.key, .self = {worker(1), incarnation}});
    std::jthread attendant([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        try {
          receive(*pair.low, in(0.01));
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::peer_lost);
        }
      }
    });
    second->connect({{worker(0), pair.endpoint}}, in(20));
    return second;
  };
  const Error error = error_of([&] { again(0); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::Contains("worker 1 is linked already"));
  pair.send(1, pattern(10), 3);
  CHECK(next(*pair.low).header.step == 3);
  const auto second = again(1);
  second->send(worker(0), header_of(pair.key, worker(1), FrameType::push, 0, 4), {});
  CHECK(next(*pair.low).header.step == 4);
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

TEST_CASE("what was sent arrives, though the sender is gone and its own queue was full") {
  const bool encrypt = GENERATE(false, true);
  Pair pair(2, encrypt);
  const auto large = pattern(8 << 20);
  for (std::uint64_t i = 0; i < 6; ++i) pair.send(1, large, i);
  pair.send(0, pattern(100));  // unread: closing resets
  std::jthread closing([&] { pair.high.reset(); });
  for (std::uint64_t i = 0; i < 6; ++i) CHECK(same(next(*pair.low).payload, large));
  CHECK_THROWS_AS(receive(*pair.low, in(20)), Error);
}
