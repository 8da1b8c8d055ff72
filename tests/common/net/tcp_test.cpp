// Tests the promises of TCP links beyond every transport: places, streams, and ends.
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include <catch2/catch.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/stream.h>
#include <psring/tests/support/tcp_cluster.h>
#include <psring/tests/support/tcp_frames.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;

namespace {

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
