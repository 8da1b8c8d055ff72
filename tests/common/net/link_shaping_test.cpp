// The shaped link: its arithmetic exactly, the channel with bounds that hold on a busy machine, too.
#include <cstring>
#include <thread>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/link_shaping.h>
#include <psring/tests/support/tcp_cluster.h>

using namespace psring;
using namespace psring::net;
using namespace psring::net::test;
using namespace std::chrono_literals;

namespace {

constexpr Moment kStart{1000s};
constexpr LinkSpec kLink{8e9, 5ms};  // a byte a nanosecond

/// Two workers over shaped TCP; worker 1 has connected to worker 0.
struct ShapedPair {
  explicit ShapedPair(const LinkSpec& link) {
    auto listener = make_tcp_channel({.key = key, .self = {worker(0), 0}});
    auto client = make_tcp_channel({.key = key, .self = {worker(1), 0}});
    const std::string endpoint = listener->listen("127.0.0.1");
    std::jthread other([&] { listener->await_links({worker(1)}, in(20)); });
    client->connect({{worker(0), endpoint}}, in(20));
    other.join();
    low =
        over(make_shaped_channel(std::move(listener), std::make_shared<LinkShaper>(link)), worker(0), key, ledgers[0]);
    high = over(make_shaped_channel(std::move(client), std::make_shared<LinkShaper>(link)), worker(1), key, ledgers[1]);
  }
  JobKey key = JobKey::generate();
  ByteLedger ledgers[2];
  std::unique_ptr<Transport> low;
  std::unique_ptr<Transport> high;
};

Message next(Transport& transport) {
  const Moment deadline = in(30);
  while (SystemClock().now() < deadline)
    if (auto message = transport.receive(deadline)) return std::move(*message);
  throw std::logic_error("nothing came");
}

FrameHeader frame(std::uint64_t step) {
  FrameHeader header;
  header.type = FrameType::push;
  header.dtype = DType::u8;
  header.step = step;
  return header;
}

}  // namespace

TEST_CASE("what --link means") {
  const auto [text, rate, delay] = GENERATE(table<std::string, double, Nanoseconds>({{"1gbit,5ms", 1e9, 5ms},
                                                                                     {"100mbit", 1e8, 0ns},
                                                                                     {"2.5gbit", 2.5e9, 0ns},
                                                                                     {"1gbit,200us", 1e9, 200us},
                                                                                     {"1gbit,0.2ms", 1e9, 200us},
                                                                                     {"1Gbit,0.2MS", 1e9, 200us},
                                                                                     {"100MBIT", 1e8, 0ns},
                                                                                     {"512kbit,1s", 512e3, 1s}}));
  const LinkSpec link = parse_link(text);
  CHECK(link.bits_per_second == rate);
  CHECK(link.delay == delay);
  CHECK(to_string(LinkSpec{1e8, 0ns}) == "100 Mbit/s");
  CHECK(to_string(LinkSpec{2.5e9, 5ms}) == "2.5 Gbit/s, 5 ms");
  CHECK(to_string(LinkSpec{1e9, 200us}) == "1 Gbit/s, 200 us");
}

TEST_CASE("what --link does not mean is told in one line") {
  const std::string text = GENERATE("", "1", "gbit", "1gb", "1gbit,", ",5ms", "1gbit,5", "1gbit,5ms,", "1gbit 5ms",
                                    "1e3gbit", "1gbit,5ms,5ms");
  try {
    parse_link(text);
    FAIL("taken: " << text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(std::string(error.what()) ==
          "--link: expected RATE[,DELAY] such as 1gbit,0.2ms or 100mbit, got '" + text + "'");
  }
}

TEST_CASE("a rate or delay out of range is told with the range") {
  for (const char* text : {"0gbit", "-1gbit", "nangbit", "infgbit", "0.5kbit", "2000gbit", "99999999gbit,1ms"})
    CHECK_THROWS_WITH(parse_link(text),
                      "--link: expected a rate from 1kbit to 1000gbit, got '" + std::string(text) + "'");
  for (const char* text : {"1gbit,11s", "1gbit,-5ms"})
    CHECK_THROWS_WITH(parse_link(text), "--link: expected a delay from 0 to 10s, got '" + std::string(text) + "'");
  CHECK(parse_link("1000gbit,10s").bits_per_second == 1e12);
}

TEST_CASE("a list of rates is told from a rate with a delay") {
  for (const char* text : {"1gbit,10gbit", "1Gbit,10GBIT,1ms"})
    CHECK_THROWS_WITH(parse_link(text), "--link: expected one rate, got '" + std::string(text) +
                                            "'; psring compare runs each rate of a list");
}

TEST_CASE("one flow alone runs at the link's rate, after one delay") {
  LinkShaper sender(kLink);
  LinkShaper receiver(kLink);
  CHECK(sender.time_of(1'000'000) == 1ms);
  for (int i = 0; i < 5; ++i) {
    const Moment start = sender.depart(1'000'000, kStart);
    CHECK(start == kStart + i * 1ms);
    CHECK(receiver.arrive(1'000'000, start) == kStart + 5ms + (i + 1) * 1ms);
  }
  // After a pause it begins anew: nothing was saved up.
  CHECK(sender.depart(1'000'000, kStart + 1s) == kStart + 1s);
  CHECK(receiver.arrive(1'000'000, kStart + 1s) == kStart + 1s + 6ms);
}

TEST_CASE("flows into one process share its ingress, those out of it its egress") {
  LinkShaper server(kLink);
  // Three hosts begin at once; each is free to send all the time.
  CHECK(server.arrive(1'000'000, kStart) == kStart + 6ms);
  CHECK(server.arrive(1'000'000, kStart) == kStart + 7ms);
  CHECK(server.arrive(2'000'000, kStart) == kStart + 9ms);
  CHECK(server.arrive(1'000'000, kStart + 1ms) == kStart + 10ms);
  // The other direction knows nothing of it.
  CHECK(server.depart(3'000'000, kStart) == kStart);
  CHECK(server.depart(1, kStart) == kStart + 3ms);
  CHECK(server.depart(1, kStart) == kStart + 3ms + 1ns);
}

TEST_CASE("shaped frames come whole, in order and not too early") {
  const std::vector<std::byte> data(500'000, std::byte{7});
  const ShapedPair pair({80e6, 30ms});  // 10 MB/s
  CHECK_THAT(pair.high->describe(worker(0)), Catch::EndsWith(", shaped to 80 Mbit/s, 30 ms"));
  CHECK(pair.high->window_bytes(worker(0)) == 100'000);
  const Moment begun = SystemClock().now();
  for (std::uint64_t i = 0; i < 4; ++i) pair.high->send(worker(0), frame(i), data);
  pair.low->send(worker(1), frame(9), data);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Message message = next(*pair.low);
    CHECK(SystemClock().now() - begun >= 30ms + (i + 1) * 50ms);
    CHECK(message.header.step == i);
    CHECK(message.payload.size() == data.size());
    CHECK(message.payload.back() == std::byte{7});
  }
  CHECK(pair.high->in_flight_bytes(worker(0)) == 0);
  CHECK(next(*pair.high).header.step == 9);
  CHECK(SystemClock().now() - begun < 25s);
  const ByteCount sent = pair.ledgers[1].snapshot().at({ByteLedger::Direction::sent, "push", "worker 0"});
  CHECK(sent.payload == 4 * data.size());
}

TEST_CASE("a frame that waits keeps a small payload's copy, and the queue drains while nobody looks") {
  const std::vector<std::byte> large(50'000);
  const ShapedPair pair({8e6, 1ms});  // 1 MB/s
  pair.high->send(worker(0), frame(0), large);
  {
    std::vector<std::byte> small(1000, std::byte{3});
    pair.high->send(worker(0), frame(1), small);
    std::fill(small.begin(), small.end(), std::byte{0});
  }
  // The sender does not come back to its transport: the card goes on by itself.
  CHECK(next(*pair.low).payload.size() == large.size());
  const Message message = next(*pair.low);
  CHECK(message.payload.size() == 1000);
  CHECK(message.payload[999] == std::byte{3});
}

TEST_CASE("what waits for the egress is in flight") {
  const std::vector<std::byte> data(100'000);
  const ShapedPair pair({8e3, 0ms});  // 1 kB/s
  for (int i = 0; i < 3; ++i) pair.high->send(worker(0), frame(0), data);
  // The first leaves at once, the second in a minute and a half.
  while (pair.high->in_flight_bytes(worker(0)) > 2 * data.size()) pair.high->receive(in(1));
  CHECK(pair.high->in_flight_bytes(worker(0)) == 2 * data.size());
}

TEST_CASE("a sender with priorities is woken when what waited has left") {
  const std::vector<std::byte> data(200'000);
  const ShapedPair pair({80e6, 0ms});
  pair.high->send(worker(0), frame(0), data);
  pair.high->send(worker(0), frame(1), data);
  // Not at the deadline, but when there is room.
  const Moment begun = SystemClock().now();
  while (pair.high->in_flight_bytes(worker(0)) > 0) CHECK_FALSE(pair.high->receive(in(30)));
  CHECK(SystemClock().now() - begun < 25s);
}

TEST_CASE("a lost peer is told after what it had sent, however slow that was") {
  const std::vector<std::byte> data(300'000);
  ShapedPair pair({80e6, 20ms});
  for (std::uint64_t i = 0; i < 3; ++i) pair.high->send(worker(0), frame(i), data);
  pair.high.reset();  // hands over what still waits
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(next(*pair.low).header.step == i);
  try {
    next(*pair.low);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer_lost);
    CHECK_THAT(error.what(), Catch::StartsWith("worker 1 at 127.0.0.1:"));
  }
  CHECK_THROWS_AS(pair.low->send(worker(1), frame(0), {}), Error);
  CHECK_FALSE(pair.low->receive(in(0.01)));
}
