#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <numeric>
#include <stop_token>
#include <thread>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/zmq/channel.h>

namespace psring::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Peer kServer{Role::server, 1};
constexpr Peer kWorker{Role::worker, 0};
const std::string kAny = "tcp://127.0.0.1:0";

Moment in(Nanoseconds time) { return SystemClock().now() + time; }

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

FrameHeader header_of(const JobKey& key, Peer self, FrameType type, std::size_t payload_bytes) {
  FrameHeader header;
  header.type = type;
  header.job = key.job_id();
  header.sender_role = self.role;
  header.sender_rank = self.rank;
  header.payload_bytes = payload_bytes;
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

/// The kind and line of what `action` throws.
Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

/// One context with a server in a thread that answers every push with values of the same payload.
class Echo {
 public:
  explicit Echo(const JobKey& key, bool encrypt = false, std::uint32_t incarnation = 0)
      : allow_list_(context.handle(), {key.client_keys().public_key}),
        channel_(make_zmq_channel(
            context, {.key = key, .self = {kServer, incarnation}, .encrypt = encrypt, .authenticator = &allow_list_})),
        endpoint(channel_->listen(kAny)),
        thread_([this, key](const std::stop_token& stop) { run(stop, key); }) {}

  void stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  /// After stop().
  ZmqChannel& channel() { return *channel_; }
  void close() {
    stop();
    channel_.reset();
    kept_.clear();
  }

  ZmqContext context;

 private:
  void run(const std::stop_token& stop, const JobKey& key) {
    while (!stop.stop_requested()) {
      try {
        auto message = receive(*channel_, in(milliseconds(20)));
        refused = channel_->refused_frames();
        if (!message) continue;
        ++pushes;
        FrameHeader answer = header_of(key, kServer, FrameType::values, message->payload.size());
        answer.sequence = message->header.sequence;
        channel_->send(message->header.sender(), answer, message->payload);
        kept_.push_back(std::move(*message));
      } catch (const Error& error) {
        ++errors;
      }
    }
  }

  ZapAuthenticator allow_list_;
  std::vector<Message> kept_;  ///< outlives the channel, which sends from it
  std::unique_ptr<ZmqChannel> channel_;

 public:
  const std::string endpoint;
  std::atomic<std::uint64_t> refused{0};
  std::atomic<int> pushes{0};
  std::atomic<int> errors{0};

 private:
  std::jthread thread_;
};

std::unique_ptr<ZmqChannel> client(ZmqContext& context, const JobKey& key, bool encrypt = false,
                                   Identity self = {kWorker, 0}) {
  return make_zmq_channel(context, {.key = key, .self = self, .encrypt = encrypt});
}

void require_echo(ZmqChannel& channel, const JobKey& key, std::size_t size, std::uint64_t sequence = 0) {
  const auto sent = pattern(size);
  FrameHeader push = header_of(key, kWorker, FrameType::push, size);
  push.sequence = sequence;
  channel.send(kServer, push, sent);
  const auto answer = receive(channel, in(seconds(20)));
  REQUIRE(answer);
  CHECK(answer->header.type == FrameType::values);
  CHECK(answer->header.sequence == sequence);
  CHECK(answer->header.sender() == kServer);
  REQUIRE(answer->payload.size() == size);
  CHECK((size == 0 || std::memcmp(answer->payload.data(), sent.data(), size) == 0));
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

/// Passes bytes between one client and a server, and those to the server only while it is not told to hold them.
class Relay {
 public:
  explicit Relay(const std::string& server) : server_(raw_connection(server)) {
    constexpr int kBuffer = 64 << 10;
    REQUIRE(::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_.get(), 1) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    endpoint = fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  std::string endpoint;
  std::atomic<bool> holds{false};

 private:
  void run(const std::stop_token& stop) {
    const Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    while (!stop.stop_requested()) {
      pollfd items[] = {{holds ? -1 : client.get(), POLLIN, 0}, {server_.get(), POLLIN, 0}};
      if (::poll(items, 2, 5) <= 0) continue;
      if ((items[0].revents & POLLIN) != 0 && !pass(client, server_)) return;
      if ((items[1].revents & POLLIN) != 0 && !pass(server_, client)) return;
    }
  }
  static bool pass(const Fd& from, const Fd& to) {
    std::array<char, 16 << 10> bytes{};
    const ssize_t size = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    return size > 0 && ::send(to.get(), bytes.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) == size;
  }

  const Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const Fd server_;
  std::jthread thread_;
};

/// The number of this process's sockets whose kernel takes at most 128 KiB that it cannot send.
int limited_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &size) == 0 && bytes == 128 << 10) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("frames of all sizes come back whole") {
  const bool encrypt = GENERATE(false, true);
  const JobKey key = JobKey::generate();
  Echo echo(key, encrypt);
  const auto channel = client(echo.context, key, encrypt);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  CHECK(channel->reaches(kServer));
  CHECK_FALSE(channel->reaches(kWorker));
  CHECK(channel->describe(kServer) == "tcp " + echo.endpoint.substr(6) + (encrypt ? ", encrypted" : ""));
  std::uint64_t sequence = 0;
  for (const std::size_t size :
       {0UL, 1UL, 255UL, 256UL, 4095UL, 4096UL, 4097UL, 8192UL, 100'000UL, 1UL << 20, 8UL << 20})
    require_echo(*channel, key, size, sequence++);
}

TEST_CASE("many frames in a row keep their order") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  constexpr std::uint64_t kFrames = 5000;
  const auto bytes = pattern(6000);
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    const std::size_t size = i % bytes.size();
    FrameHeader push = header_of(key, kWorker, FrameType::push, size);
    push.sequence = i;
    channel->send(kServer, push, std::span(bytes).first(size));
  }
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    const auto answer = receive(*channel, in(seconds(20)));
    REQUIRE(answer);
    REQUIRE(answer->header.sequence == i);
    REQUIRE(answer->payload.size() == i % bytes.size());
  }
  CHECK(channel->in_flight_bytes(kServer) == 0);
}

TEST_CASE("one channel listens and connects, and several links share its descriptor") {
  const JobKey key = JobKey::generate();
  Echo first(key);
  Echo second(key);
  constexpr Peer kOther{Role::worker, 7};
  const auto middle = client(first.context, key);
  const std::string endpoint = middle->listen(kAny);
  middle->connect({{kServer, first.endpoint}}, in(seconds(20)));
  // The second echo calls itself server 1 as well: it is linked to as such by the other client.
  std::promise<void> done;
  const std::jthread other([&] {
    const auto channel = client(second.context, key, false, {kOther, 0});
    channel->connect({{kWorker, endpoint}}, in(seconds(20)));
    channel->send(kWorker, header_of(key, kOther, FrameType::pull, 0), {});
    done.set_value();
  });
  const auto pull = receive(*middle, in(seconds(20)));
  REQUIRE(pull);
  CHECK(pull->header.sender() == kOther);
  require_echo(*middle, key, 10'000);
  CHECK(done.get_future().wait_for(seconds(20)) == std::future_status::ready);
}

TEST_CASE("another job's key is told in one line, at once") {
  const bool encrypt = GENERATE(false, true);
  const JobKey key = JobKey::generate();
  Echo echo(key, encrypt);
  const auto channel = client(echo.context, JobKey::generate(), encrypt);
  const Moment begun = SystemClock().now();
  const Error error = error_of([&] { channel->connect({{kServer, echo.endpoint}}, in(seconds(20))); });
  CHECK(seconds(5) > SystemClock().now() - begun);
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::StartsWith("server 1 at " + echo.endpoint));
  CHECK_FALSE(channel->reaches(kServer));
  const auto right = client(echo.context, key, encrypt);
  right->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  require_echo(*right, key, 5000);
}

TEST_CASE("a client that holds the server's public key only is not let in") {
  const JobKey key = JobKey::generate();
  Echo echo(key, true);
  ZmqSocket stranger(echo.context.handle(), ZMQ_DEALER);
  stranger.set(ZMQ_LINGER, 0);
  use_curve_client(stranger.handle(), JobKey::generate().client_keys(), key.server_keys().public_key);
  char address[] = "inproc://stranger";
  REQUIRE(zmq_socket_monitor(stranger.handle(), address,
                             ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_SUCCEEDED) == 0);
  ZmqSocket monitor(echo.context.handle(), ZMQ_PAIR);
  monitor.set(ZMQ_RCVTIMEO, 20'000);
  REQUIRE(zmq_connect(monitor.handle(), address) == 0);
  REQUIRE(zmq_connect(stranger.handle(), echo.endpoint.c_str()) == 0);
  std::uint16_t event[3];
  REQUIRE(zmq_recv(monitor.handle(), event, sizeof event, 0) == sizeof event);
  CHECK(event[0] == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
  zmq_socket_monitor(stranger.handle(), nullptr, 0);
}

TEST_CASE("one side encrypts and the other does not") {
  const bool encrypt = GENERATE(false, true);
  const JobKey key = JobKey::generate();
  Echo echo(key, encrypt);
  const auto channel = client(echo.context, key, !encrypt);
  const Error error = error_of([&] { channel->connect({{kServer, echo.endpoint}}, in(seconds(20))); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::Contains("--encrypt"));
}

TEST_CASE("nobody listens: the deadline holds and the endpoint is named") {
  const JobKey key = JobKey::generate();
  ZmqContext context;
  const auto channel = client(context, key);
  const Error error = error_of([&] { channel->connect({{kServer, "tcp://127.0.0.1:1"}}, in(milliseconds(200))); });
  CHECK(error.kind() == ErrorKind::timeout);
  CHECK(std::string(error.what()) == "no link to server 1 at tcp://127.0.0.1:1: nobody listens there");
}

TEST_CASE("a listener that says nothing ends at the deadline") {
  const JobKey key = JobKey::generate();
  ZmqContext context;
  const auto silent = client(context, key);
  const std::string endpoint = silent->listen(kAny);
  const auto channel = client(context, key);
  const Error error = error_of([&] { channel->connect({{kServer, endpoint}}, in(milliseconds(300))); });
  CHECK(error.kind() == ErrorKind::timeout);
  CHECK_THAT(error.what(), Catch::EndsWith("it does not answer"));
}

TEST_CASE("another server at the endpoint than was meant") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  const Error error = error_of([&] { channel->connect({{{Role::server, 0}, echo.endpoint}}, in(seconds(20))); });
  CHECK(error.kind() == ErrorKind::protocol);
  CHECK_THAT(error.what(), Catch::Contains("expected server 0") && Catch::Contains("found server 1"));
}

TEST_CASE("addresses that cannot be bound") {
  const JobKey key = JobKey::generate();
  ZmqContext context;
  const auto first = client(context, key);
  const std::string endpoint = first->listen(kAny);
  const auto second = client(context, key);
  const Error in_use = error_of([&] { second->listen(endpoint); });
  CHECK(exit_status(in_use.kind()) == 3);
  CHECK_THAT(in_use.what(), Catch::Contains(endpoint) && Catch::Contains("Address already in use"));
  CHECK(error_of([&] { second->listen("tcp://192.0.2.1:0"); }).kind() == ErrorKind::data);
  CHECK(error_of([&] { second->listen("nonsense"); }).kind() == ErrorKind::data);
  CHECK_NOTHROW(second->listen(kAny));
}

TEST_CASE("strangers' bytes do nothing") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));

  const Fd raw = raw_connection(echo.endpoint);
  const auto garbage = pattern(100'000);
  CHECK(::send(raw.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
  const Fd silent = raw_connection(echo.endpoint);

  ZmqContext elsewhere;
  ZmqSocket dealer(elsewhere.handle(), ZMQ_DEALER);
  dealer.set(ZMQ_LINGER, 0);
  dealer.set(ZMQ_RCVTIMEO, 20'000);
  REQUIRE(zmq_connect(dealer.handle(), echo.endpoint.c_str()) == 0);
  const auto say = [&](std::span<const std::byte> part, bool more) {
    REQUIRE(zmq_send(dealer.handle(), part.data(), part.size(), more ? ZMQ_SNDMORE : 0) >= 0);
  };
  say({}, false);
  const auto some = std::span(garbage).first(128);
  for (int i = 0; i < 20; ++i) say(some, i < 19);
  say(some, true);
  say(std::span(garbage).first(5000), false);
  // A whole and valid push in the worker's name, from someone who has proved nothing, is refused aloud.
  const auto push = encode(header_of(key, kWorker, FrameType::push, 5));
  say(std::span(garbage).first(5), true);
  say(push, false);
  std::array<std::byte, 1024> answer{};
  const int size = zmq_recv(dealer.handle(), answer.data(), answer.size(), 0);
  REQUIRE(size > static_cast<int>(kHeaderBytes));
  CHECK(decode(std::span(answer).first(kHeaderBytes)).type == FrameType::refused);
  for (int i = 0; i < 20; ++i) say(garbage, i < 19);  // it is hung up on

  require_echo(*channel, key, 50'000);
  const auto late = client(echo.context, key, false, {{Role::worker, 1}, 0});
  late->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  echo.stop();
  CHECK(echo.pushes == 1);
  CHECK(echo.errors == 0);
  // At least ours: ZeroMQ takes what is not ZMTP 3 for ZMTP 1, and finds frames in it.
  CHECK(echo.channel().refused_frames() >= 4);
}

TEST_CASE("a name that a client chose for its routing is not served") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  ZmqSocket dealer(echo.context.handle(), ZMQ_DEALER);
  dealer.set(ZMQ_LINGER, 0);
  dealer.set(ZMQ_ROUTING_ID, "chosen");
  REQUIRE(zmq_connect(dealer.handle(), echo.endpoint.c_str()) == 0);
  const HandshakeFrame hello = ClientHandshake(key, {kWorker, 0}, kServer, "", random_nonce()).start();
  const auto header = encode(hello.header);
  zmq_send(dealer.handle(), hello.payload.data(), hello.payload.size(), ZMQ_SNDMORE);
  zmq_send(dealer.handle(), header.data(), header.size(), 0);
  const Moment deadline = in(seconds(20));
  while (echo.refused == 0 && SystemClock().now() < deadline) std::this_thread::yield();
  CHECK(echo.refused == 1);
}

TEST_CASE("payloads above the limit are refused before they leave") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  const std::vector<std::byte> large(kMaxPayloadBytes + 1);
  const FrameHeader push = header_of(key, kWorker, FrameType::push, large.size());
  CHECK_THROWS_AS(channel->send(kServer, push, large), Error);
  require_echo(*channel, key, kMaxPayloadBytes);
}

TEST_CASE("a peer that breaks the protocol costs its link") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  FrameHeader push = header_of(key, kWorker, FrameType::push, 0);
  SECTION("in another's name") { push.sender_rank = 5; }
  SECTION("of another job") { push.job ^= 1; }
  SECTION("by a second handshake") { push.type = FrameType::hello; }
  SECTION("with an impossible range") { push.begin = 1; }
  channel->send(kServer, push, {});
  const Moment deadline = in(seconds(20));
  while (echo.errors == 0 && SystemClock().now() < deadline) std::this_thread::yield();
  CHECK(echo.errors == 1);
  // The server has forgotten the link, so this frame comes from a stranger.
  channel->send(kServer, header_of(key, kWorker, FrameType::push, 0), {});
  const Error error = error_of([&] { receive(*channel, in(seconds(20))); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK_FALSE(channel->reaches(kServer));
  echo.stop();
  CHECK_FALSE(echo.channel().reaches(kWorker));
  CHECK(echo.pushes == 0);
}

TEST_CASE("a server that goes away is noticed, after what it had sent") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  const auto bytes = pattern(3 << 20);
  channel->send(kServer, header_of(key, kWorker, FrameType::push, bytes.size()), bytes);
  const Moment deadline = in(seconds(20));
  while (echo.pushes == 0 && SystemClock().now() < deadline) std::this_thread::yield();
  echo.close();
  const auto answer = receive(*channel, in(seconds(20)));
  REQUIRE(answer);
  CHECK(answer->payload.size() == bytes.size());
  const Error error = error_of([&] { receive(*channel, in(seconds(20))); });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK(std::string(error.what()) == "server 1 at " + echo.endpoint + " closed the connection");
  CHECK_FALSE(channel->reaches(kServer));
  CHECK(error_of([&] { channel->send(kServer, header_of(key, kWorker, FrameType::push, 0), {}); }).kind() ==
        ErrorKind::peer_lost);
  CHECK_FALSE(receive(*channel, in(milliseconds(1))));

  // Another server takes its place.
  Echo next(key);
  channel->connect({{kServer, next.endpoint}}, in(seconds(20)));
  require_echo(*channel, key, 5000);
}

TEST_CASE("sending to a client that went away throws peer_lost") {
  const auto bytes = pattern(10'000);
  const JobKey key = JobKey::generate();
  Echo echo(key);
  auto channel = client(echo.context, key);
  channel->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  require_echo(*channel, key, 10);
  echo.stop();
  channel.reset();
  const FrameHeader values = header_of(key, kServer, FrameType::values, bytes.size());
  const Moment deadline = in(seconds(20));
  const Error error = error_of([&] {
    while (SystemClock().now() < deadline) echo.channel().send(kWorker, values, bytes);
  });
  CHECK(error.kind() == ErrorKind::peer_lost);
  CHECK_THAT(error.what(), Catch::StartsWith("worker 0 at 127.0.0.1"));
  CHECK_FALSE(echo.channel().reaches(kWorker));
}

TEST_CASE("a peer that comes back replaces its old link, but not an earlier incarnation of it") {
  const JobKey key = JobKey::generate();
  Echo echo(key);
  const auto old = client(echo.context, key, false, {kWorker, 1});
  old->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  require_echo(*old, key, 10);
  const auto fresh = client(echo.context, key, false, {kWorker, 2});
  fresh->connect({{kServer, echo.endpoint}}, in(seconds(20)));
  require_echo(*fresh, key, 5000);
  // The old link is a stranger's now.
  old->send(kServer, header_of(key, kWorker, FrameType::push, 0), {});
  CHECK(error_of([&] { receive(*old, in(seconds(20))); }).kind() == ErrorKind::peer_lost);
  const Error error = error_of([&] { old->connect({{kServer, echo.endpoint}}, in(seconds(20))); });
  CHECK(error.kind() == ErrorKind::unauthorised);
  CHECK_THAT(error.what(), Catch::Contains("later incarnation"));
  require_echo(*fresh, key, 5000);
}

TEST_CASE("a sleeping sender is woken when its queue has run low") {
  const JobKey key = JobKey::generate();
  ZmqContext context;
  const auto server = client(context, key, false, {kServer, 0});
  const std::string endpoint = server->listen(kAny);
  std::atomic<int> pieces{0};
  constexpr int kPieces = 32;
  const std::jthread taker([&] {
    while (pieces < kPieces && receive(*server, in(seconds(20)))) ++pieces;
  });
  const auto piece = pattern(1 << 20);
  const auto channel = client(context, key);
  channel->connect({{kServer, endpoint}}, in(seconds(20)));
  for (int i = 0; i < kPieces; ++i)
    channel->send(kServer, header_of(key, kWorker, FrameType::push, piece.size()), piece);
  CHECK(channel->in_flight_bytes(kServer) > 0);
  const Moment deadline = in(seconds(20));
  while (channel->in_flight_bytes(kServer) > (1 << 20) && SystemClock().now() < deadline) {
    CHECK_FALSE(channel->try_receive());
    if (!channel->arm()) continue;
    pollfd item{channel->wait_fd(), POLLIN, 0};
    REQUIRE(::poll(&item, 1, 20'000) == 1);
    channel->woken();
  }
  CHECK(channel->in_flight_bytes(kServer) <= (1 << 20));
}

// ZeroMQ encrypts a message before it sends it, and does not need the original any more.
TEST_CASE("a payload is in flight until it has left, and its departure wakes the sender") {
  const bool encrypt = GENERATE(false, true);
  const JobKey key = JobKey::generate();
  Echo echo(key, encrypt);
  Relay relay(echo.endpoint);
  const auto channel = client(echo.context, key, encrypt);
  channel->follow_departures();
  channel->connect({{kServer, relay.endpoint}}, in(seconds(20)));
  CHECK(limited_sockets() == 1);
  const auto payload = pattern(kMaxPayloadBytes);  // more than the kernel's buffers on the way take
  relay.holds = true;
  channel->send(kServer, header_of(key, kWorker, FrameType::push, payload.size()), payload);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(channel->in_flight_bytes(kServer) == payload.size());
  relay.holds = false;
  std::optional<Message> answer;
  const Moment deadline = in(seconds(20));
  while (!(answer = channel->try_receive()) && SystemClock().now() < deadline) {
    if (!channel->arm()) continue;
    pollfd item{channel->wait_fd(), POLLIN, 0};
    REQUIRE(::poll(&item, 1, 20'000) == 1);
    channel->woken();
  }
  REQUIRE(answer);
  CHECK(answer->payload.size() == payload.size());
  CHECK(channel->in_flight_bytes(kServer) == 0);
}

TEST_CASE("closing sends what is queued and lets go of the caller's memory") {
  const JobKey key = JobKey::generate();
  ZmqContext context;
  const auto server = client(context, key, false, {kServer, 0});
  const std::string endpoint = server->listen(kAny);
  const std::jthread sender([&] {
    auto channel = client(context, key);
    channel->connect({{kServer, endpoint}}, in(seconds(20)));
    auto bytes = pattern(8 << 20);
    channel->send(kServer, header_of(key, kWorker, FrameType::push, bytes.size()), bytes);
    channel.reset();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  });
  const auto push = receive(*server, in(seconds(20)));
  REQUIRE(push);
  const auto expected = pattern(8 << 20);
  REQUIRE(push->payload.size() == expected.size());
  CHECK(std::memcmp(push->payload.data(), expected.data(), expected.size()) == 0);
}

}  // namespace psring::net
