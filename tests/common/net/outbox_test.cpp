#include <map>
#include <string>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/outbox.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr Peer kA{Role::server, 0};
constexpr Peer kB{Role::server, 1};

/// Keeps what it is given in flight until the test says that it has left.
class Recorder final : public Transport {
 public:
  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (to == lost) fail(ErrorKind::peer_lost, "{} is gone", to_string(to));
    sent.push_back(fmt::format("{} {}@{} to {}", to_string(header.type), header.unit, header.begin, to.rank));
    in_flight[to] += payload.size();
  }
  std::optional<Message> receive(Moment) override { return std::nullopt; }
  std::size_t in_flight_bytes(Peer peer) const override {
    const auto at = in_flight.find(peer);
    return at == in_flight.end() ? 0 : at->second;
  }
  std::size_t window_bytes(Peer) const override { return window; }
  std::string describe(Peer) const override { return "recorder"; }
  void wake() override {}

  std::vector<std::string> take() { return std::exchange(sent, {}); }

  std::vector<std::string> sent;
  std::map<Peer, std::size_t> in_flight;
  std::size_t window = kWindowBytes;
  Peer lost{Role::agent, 0};
};

const std::vector<std::byte> kBytes(1 << 20);

Outgoing frame(Peer to, FrameType type, std::uint32_t unit, std::size_t begin, std::size_t bytes) {
  FrameHeader header;
  header.type = type;
  header.unit = unit;
  header.begin = header.end = begin;
  return {to, header, std::span(kBytes).first(bytes)};
}

using Sent = std::vector<std::string>;

}  // namespace

TEST_CASE("what the next forward pass needs first leaves first") {
  Outbox outbox;
  Recorder transport;
  outbox.add(frame(kA, FrameType::push, 2, 0, 64));  // backward makes the last unit first
  outbox.add(frame(kA, FrameType::push, 1, 256, 64));
  outbox.add(frame(kA, FrameType::push, 1, 0, 64));
  outbox.add(frame(kA, FrameType::pull, 3, 0, 0));  // asks: no payload
  outbox.add(frame(kA, FrameType::push, 0, 0, 64));
  outbox.add(frame(kA, FrameType::initial, 0, 0, 64));  // as they came
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"pull 3@0 to 0", "push 0@0 to 0", "initial 0@0 to 0", "push 1@0 to 0",
                                 "push 1@256 to 0", "push 2@0 to 0"});
  CHECK(outbox.empty());
}

TEST_CASE("a peer of more weight has more in flight, also when frames wait for it alone") {
  Outbox outbox(100);
  outbox.set_weight(kA, 2.5);
  Recorder transport;
  for (std::uint32_t unit = 0; unit < 9; ++unit)
    for (const Peer peer : {kA, kB}) outbox.add(frame(peer, FrameType::push, unit, 0, 50));
  outbox.flush(transport);
  CHECK(transport.in_flight == std::map<Peer, std::size_t>{{kA, 250}, {kB, 100}});
  transport.in_flight.clear();
  outbox.flush(transport);
  CHECK(transport.in_flight == std::map<Peer, std::size_t>{{kA, 200}, {kB, 100}});  // no more frames for A
  Outbox alone(100);
  alone.set_weight(kA, 2.5);
  for (std::uint32_t unit = 0; unit < 9; ++unit) alone.add(frame(kA, FrameType::push, unit, 0, 50));
  transport.in_flight.clear();
  alone.flush(transport);
  CHECK(transport.in_flight.at(kA) == 250);
}

TEST_CASE("a window bounds what is in flight to each peer, so that what is urgent overtakes") {
  Outbox outbox(100);
  Recorder transport;
  for (std::uint32_t unit = 9; unit > 5; --unit) outbox.add(frame(kA, FrameType::push, unit, 0, 60));
  outbox.add(frame(kB, FrameType::push, 7, 0, 60));
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 6@0 to 0", "push 7@0 to 0", "push 7@0 to 1"});  // 60 leave room, 120 do not
  CHECK_FALSE(outbox.empty());
  outbox.flush(transport);
  CHECK(transport.take().empty());
  outbox.add(frame(kA, FrameType::push, 0, 0, 60));
  outbox.add(frame(kB, FrameType::pull, 4, 0, 0));
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"pull 4@0 to 1"});
  transport.in_flight[kA] = 99;
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 0@0 to 0"});
  transport.in_flight[kA] = 0;
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 8@0 to 0", "push 9@0 to 0"});
  CHECK(outbox.empty());
}

TEST_CASE("to one peer frames may leave as they came") {
  Outbox outbox(100, kA);
  Recorder transport;
  for (const Peer peer : {kA, kB}) {
    outbox.add(frame(peer, FrameType::push, 2, 0, 60));
    outbox.add(frame(peer, FrameType::leave, 0, 0, 0));
    outbox.add(frame(peer, FrameType::push, 1, 0, 60));
    outbox.add(frame(peer, FrameType::push, 0, 0, 60));
  }
  outbox.flush(transport);
  CHECK(transport.take() ==
        Sent{"push 2@0 to 0", "leave 0@0 to 0", "push 1@0 to 0", "leave 0@0 to 1", "push 0@0 to 1", "push 1@0 to 1"});
  transport.in_flight[kA] = 0;
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 0@0 to 0"});
}

TEST_CASE("a slow link's window is the transport's to say") {
  Outbox outbox;
  Recorder transport;
  transport.window = 50;
  for (std::uint32_t unit = 3; unit > 0; --unit) outbox.add(frame(kA, FrameType::push, unit, 0, 60));
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 1@0 to 0"});
}

TEST_CASE("a frame to a lost peer is dropped, and the others' are sent") {
  Outbox outbox;
  Recorder transport;
  transport.lost = kA;
  outbox.add(frame(kA, FrameType::push, 0, 0, 60));
  outbox.add(frame(kB, FrameType::push, 0, 0, 60));
  CHECK_THROWS_AS(outbox.flush(transport), Error);
  SECTION("alone") {
    outbox.flush(transport);
    CHECK(transport.take() == Sent{"push 0@0 to 1"});
  }
  SECTION("with frames to the same peer, which is linked again") {
    transport.lost = {Role::agent, 0};
    outbox.add(frame(kA, FrameType::push, 2, 0, 64));
    outbox.add(frame(kA, FrameType::push, 1, 0, 64));
    outbox.flush(transport);
    CHECK(transport.take() == Sent{"push 0@0 to 1", "push 1@0 to 0", "push 2@0 to 0"});
  }
  CHECK(outbox.empty());
}

TEST_CASE("a frame keeps its holder until it is sent") {
  Outbox outbox;
  Recorder transport;
  auto held = std::make_shared<std::vector<std::byte>>(8);
  const std::weak_ptr<std::vector<std::byte>> watch = held;
  Outgoing out = frame(kA, FrameType::failed, 0, 0, 0);
  out.payload = *held;
  out.holder = std::exchange(held, nullptr);
  outbox.add(std::exchange(out, Outgoing{}));
  CHECK_FALSE(watch.expired());
  outbox.flush(transport);
  CHECK(watch.expired());
}

TEST_CASE("payloads for the own server leave after those before them") {
  constexpr std::size_t kUnit = 400 << 10;
  Outbox outbox;
  Recorder transport;
  outbox.hold(kA);
  outbox.add(frame(kB, FrameType::push, 1, kUnit, kUnit));
  outbox.add(frame(kA, FrameType::push, 1, 0, kUnit));
  outbox.add(frame(kA, FrameType::pull, 2, 0, 0));
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"pull 2@0 to 0", "push 1@409600 to 1"});
  outbox.add(frame(kB, FrameType::push, 0, kUnit, kUnit));
  outbox.add(frame(kA, FrameType::push, 0, 0, kUnit));
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 0@409600 to 1"});
  CHECK_FALSE(outbox.empty());

  transport.in_flight[kB] -= kUnit;  // unit 1 has left
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 1@0 to 0"});
  transport.in_flight[kB] = 128 << 10;  // nearly all of unit 0, too
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 0@0 to 0"});
  CHECK(outbox.empty());
}

TEST_CASE("payloads for the own server take their turns with those that have no room yet") {
  constexpr std::size_t kPiece = 400 << 10;
  Outbox outbox(kPiece);  // a piece at a time
  Recorder transport;
  outbox.hold(kA);
  const auto add = [&](std::uint32_t unit, std::size_t piece) {
    outbox.add(frame(kB, FrameType::push, unit, piece, kPiece));
    outbox.add(frame(kA, FrameType::push, unit, piece, kPiece));
  };
  add(1, 0), add(1, 1);
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 1@0 to 1"});
  add(0, 0);  // is needed first
  for (const Sent& next : {Sent{"push 0@0 to 1", "push 1@0 to 0"}, Sent{"push 1@1 to 1", "push 0@0 to 0"}}) {
    transport.in_flight[kB] = 0;
    outbox.flush(transport);
    CHECK(transport.take() == next);
  }
  transport.in_flight[kB] = 0;
  outbox.flush(transport);
  CHECK(transport.take() == Sent{"push 1@1 to 0"});
  CHECK(outbox.empty());
}

TEST_CASE("without other peers nothing waits") {
  Outbox outbox(1 << 20);
  Recorder transport;
  outbox.hold(kA);
  for (std::uint32_t unit = 0; unit < 3; ++unit) outbox.add(frame(kA, FrameType::push, unit, 0, 1 << 20));
  outbox.flush(transport);  // all: they need no room on a card
  CHECK(transport.take() == Sent{"push 0@0 to 0", "push 1@0 to 0", "push 2@0 to 0"});
}
