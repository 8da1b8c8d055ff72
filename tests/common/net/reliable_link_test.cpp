// The protocol of a reliable link, between two ends and a road that does to frames what a seed says.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/net/sim/reliable_link.h>

using namespace psring;
using namespace psring::net;
using namespace std::chrono_literals;

namespace {

using Kind = ReliableLink::Frame::Kind;

struct Wire {
  Kind kind;
  Message message;
};

/// One end: what it sends has its own number as step, and as every byte of the payload.
struct End {
  explicit End(std::uint32_t incarnation = 0) : link({.incarnation = incarnation}) {}

  void send(std::size_t bytes) {
    auto payload = std::make_shared<std::vector<std::byte>>(bytes, static_cast<std::byte>(sent));
    FrameHeader header{.type = FrameType::message};
    header.step = sent++;
    const std::span<const std::byte> view(*payload);
    link.send(header, view, std::move(payload));
  }
  /// The frames that leave now, as a socket would receive them.
  std::vector<Wire> poll(Moment now, bool idle = true) {
    std::vector<ReliableLink::Frame> out;
    link.poll(now, idle, false, out);
    std::vector<Wire> wire;
    for (const ReliableLink::Frame& frame : out) {
      auto bytes = std::make_shared<std::vector<std::byte>>(frame.payload.begin(), frame.payload.end());
      Message message{decode(encode(frame.header)), *bytes, {}, bytes};
      message.header.sequence = 7;  // what transports fill in
      message.header.job = 99;
      wire.push_back({frame.kind, std::move(message)});
    }
    return wire;
  }
  void take(const Message& message, Moment now) {
    std::vector<Message> delivered;
    link.on_frame(message, now, delivered);
    for (const Message& each : delivered) {
      REQUIRE(each.header.step == taken);
      REQUIRE(std::ranges::count(each.payload, static_cast<std::byte>(taken)) == std::ssize(each.payload));
      ++taken;
    }
  }

  ReliableLink link;
  std::uint64_t sent = 0;
  std::uint64_t taken = 0;
};

Message changed(const Message& message, std::uint64_t bit) {
  auto bytes = std::make_shared<std::vector<std::byte>>(message.payload.begin(), message.payload.end());
  Message other{message.header, *bytes, {}, bytes};
  if (bytes->empty()) {
    other.header.step ^= std::uint64_t{1} << (bit % 64);
  } else {
    (*bytes)[bit / 8 % bytes->size()] ^= std::byte{1} << (bit % 8);
  }
  return other;
}

/// Two ends and what is between them. Frames of each way are taken in any order; the clock goes on when nothing else
/// can happen, or by chance.
struct Road {
  struct Faults {
    unsigned drop = 0;  ///< in percent
    unsigned duplicate = 0;
    unsigned reorder = 0;
    unsigned corrupt = 0;
  };

  Road(std::uint64_t seed, const Faults& what) : random(seed), faults(what) {}

  bool chance(unsigned percent) { return random() % 100 < percent; }

  void leave(std::size_t from, bool idle) {
    for (Wire& wire : ends[from].poll(now, idle)) {
      ++frames;
      again += wire.kind == Kind::again ? 1 : 0;
      if (chance(faults.drop)) continue;
      if (chance(faults.duplicate)) between[from].push_back(wire.message);
      if (chance(faults.corrupt)) wire.message = changed(wire.message, random());
      between[from].push_back(std::move(wire.message));
    }
  }
  void arrive(std::size_t from) {
    std::deque<Message>& way = between[from];
    const std::size_t at = chance(faults.reorder) ? random() % way.size() : 0;
    const Message message = way[at];
    way.erase(way.begin() + static_cast<std::ptrdiff_t>(at));
    ends[1 - from].take(message, now);
  }
  void wait() {
    const Moment due = std::min(ends[0].link.due(), ends[1].link.due());
    REQUIRE(due != kNever);
    now = std::max(now, due);
  }
  bool done(std::uint64_t count) const {
    return ends[0].taken == count && ends[1].taken == count && ends[0].link.all_arrived() && ends[1].link.all_arrived();
  }
  /// `count` frames each way, sent when chance says so.
  void run(std::uint64_t count) {
    for (std::size_t turns = 0; !done(count); ++turns) {
      REQUIRE(turns < 2000 * (count + 1));
      now += Nanoseconds(random() % 100'000);
      const std::size_t end = random() % 2;
      if (ends[end].sent < count && chance(50)) ends[end].send(random() % 4 == 0 ? 0 : random() % 3000);
      leave(end, chance(30));
      most = std::max({most, between[0].size(), between[1].size()});
      if (!between[end].empty() && chance(60)) {
        arrive(end);
      } else if (between[0].empty() && between[1].empty() && ends[0].sent == count && ends[1].sent == count) {
        leave(0, true);
        leave(1, true);
        if (between[0].empty() && between[1].empty() && !done(count)) wait();
      }
    }
  }

  std::mt19937_64 random;
  Faults faults;
  End ends[2];
  std::deque<Message> between[2];
  Moment now{};
  std::uint64_t frames = 0;
  std::uint64_t again = 0;
  std::size_t most = 0;
};

/// All that leaves an end reaches the other.
void carry(End& from, End& to, Moment now) {
  for (const Wire& wire : from.poll(now)) to.take(wire.message, now);
}

}  // namespace

TEST_CASE("over a road that does nothing wrong nothing is sent again") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Road road(seed, {});
    road.run(100);
    CHECK(road.again == 0);
    CHECK(road.ends[0].link.counts().again == 0);
  }
}

TEST_CASE("frames arrive each once and in order, whatever is lost, doubled, overtaken or changed") {
  const auto faults = GENERATE(values<Road::Faults>({{.drop = 1},
                                                     {.drop = 30},
                                                     {.duplicate = 30},
                                                     {.reorder = 100},
                                                     {.corrupt = 30},
                                                     {.drop = 20, .duplicate = 20, .reorder = 50, .corrupt = 20},
                                                     {.drop = 60, .duplicate = 60, .reorder = 100, .corrupt = 30}}));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Road road(seed, faults);
    road.run(60);
    if (faults.duplicate >= 30) CHECK(road.ends[0].link.counts().again + road.ends[1].link.counts().again > 0);
    if (faults.corrupt >= 30) CHECK(road.ends[0].link.counts().changed + road.ends[1].link.counts().changed > 0);
    if (faults.drop >= 30) CHECK(road.again > 0);
  }
}

TEST_CASE("a lost frame comes again as soon as three later ones have arrived, and no other does") {
  End sender;
  End receiver;
  for (int i = 0; i < 6; ++i) sender.send(10);
  Moment now{};
  std::vector<Wire> wire = sender.poll(now);
  REQUIRE(wire.size() == 6);
  for (std::size_t i = 0; i < 6; ++i)
    if (i != 1) receiver.take(wire[i].message, now + 1ms);
  CHECK(receiver.taken == 1);
  carry(receiver, sender, now + 2ms);
  wire = sender.poll(now + 2ms);
  REQUIRE(wire.size() == 1);
  CHECK(wire[0].kind == Kind::again);
  CHECK(wire[0].message.header.step == 1);
  receiver.take(wire[0].message, now + 3ms);
  CHECK(receiver.taken == 6);
  carry(receiver, sender, now + 4ms);
  CHECK(sender.link.all_arrived());
  CHECK(sender.link.due() == kNever);
}

TEST_CASE("without an answer the oldest frame alone comes again, after twice as long each time, up to a bound") {
  End sender;
  for (int i = 0; i < 3; ++i) sender.send(10);
  Moment now{};
  CHECK(sender.poll(now).size() == 3);
  const ReliableLink::Options bounds;
  for (const Nanoseconds wait : {20ms, 40ms, 80ms, 160ms, 320ms, 500ms, 500ms}) {
    CHECK(sender.link.due() == now + wait);
    CHECK(sender.poll(now + wait - 1ns).empty());
    now += wait;
    const std::vector<Wire> wire = sender.poll(now);
    REQUIRE(wire.size() == 1);
    CHECK(wire[0].message.header.step == 0);
  }
  CHECK(bounds.last_retry == 500ms);
}

TEST_CASE("round trips that are long are waited for") {
  End sender;
  End receiver;
  Moment now{};
  for (int i = 0; i < 20; ++i) {
    sender.send(1);
    for (const Wire& wire : sender.poll(now)) receiver.take(wire.message, now + 100ms);
    now += 200ms;
    carry(receiver, sender, now);
  }
  sender.send(1);
  sender.poll(now);
  CHECK(sender.link.due() >= now + 200ms);
}

TEST_CASE("what has not left yet is not sent again") {
  End sender;
  sender.send(1);
  sender.poll(Moment{});
  std::vector<ReliableLink::Frame> out;
  sender.link.poll(Moment{} + 20ms, true, true, out);
  CHECK(out.empty());
  CHECK(sender.link.due() == Moment{} + 40ms);
}

TEST_CASE("a window bounds what is on its way, by frames and by bytes") {
  End sender;
  End receiver;
  for (int i = 0; i < 100; ++i) sender.send(100);
  std::vector<Wire> wire = sender.poll(Moment{});
  CHECK(wire.size() == ReliableLink::kWindowFrames);
  CHECK(sender.link.waiting_bytes() == 6800);
  for (const Wire& each : wire) receiver.take(each.message, Moment{});
  carry(receiver, sender, Moment{});
  CHECK(sender.poll(Moment{}).size() == ReliableLink::kWindowFrames);

  End large;
  for (int i = 0; i < 3; ++i) large.send(3 << 20);
  CHECK(large.poll(Moment{}).size() == 1);
  End vast;
  vast.send(16 << 20);
  CHECK(vast.poll(Moment{}).size() == 1);
}

TEST_CASE("what arrives is told with the next frame, or with one of its own where nothing else leaves") {
  End a;
  End b;
  a.send(1);
  carry(a, b, Moment{});
  SECTION("with a frame") {
    b.send(1);
    const std::vector<Wire> wire = b.poll(Moment{});
    REQUIRE(wire.size() == 1);
    CHECK(wire[0].kind == Kind::first);
    a.take(wire[0].message, Moment{});
  }
  SECTION("alone, once all that is there was taken") {
    CHECK(b.poll(Moment{}, false).empty());
    const std::vector<Wire> wire = b.poll(Moment{}, true);
    REQUIRE(wire.size() == 1);
    CHECK(wire[0].message.header.type == FrameType::acknowledge);
    a.take(wire[0].message, Moment{});
    CHECK(a.poll(Moment{}).empty());  // which is not told in turn
  }
  SECTION("alone, where many have come") {
    for (int i = 0; i < 7; ++i) a.send(1);
    carry(a, b, Moment{});
    const std::vector<Wire> wire = b.poll(Moment{}, false);
    REQUIRE(wire.size() == 1);
    a.take(wire[0].message, Moment{});
  }
  CHECK(a.link.all_arrived());
}

TEST_CASE("every bit of a frame that its sender knows is checked") {
  End sender;
  sender.send(40);
  const Message message = sender.poll(Moment{})[0].message;
  for (std::uint64_t bit = 0; bit < 320; ++bit) {
    End receiver;
    receiver.take(changed(message, bit), Moment{});
    CHECK(receiver.taken == 0);
    CHECK(receiver.link.counts().changed == 1);
  }
  for (const auto& change : std::vector<std::function<void(FrameHeader&)>>{
           [](FrameHeader& h) { h.place ^= 1; }, [](FrameHeader& h) { h.taken ^= 1; },
           [](FrameHeader& h) { h.later ^= 1; }, [](FrameHeader& h) { h.life ^= 1; },
           [](FrameHeader& h) { h.incarnation ^= 1; }, [](FrameHeader& h) { h.step ^= 1; },
           [](FrameHeader& h) { h.begin ^= 1; }, [](FrameHeader& h) { h.type = FrameType::push; }}) {
    End receiver;
    Message other = message;
    change(other.header);
    receiver.take(other, Moment{});
    CHECK(receiver.link.counts().changed == 1);
  }
  End receiver;
  receiver.take(message, Moment{});
  CHECK(receiver.taken == 1);
}

TEST_CASE("a peer that was restarted begins anew, and nothing of its old life reaches it") {
  End server;
  End old;
  Moment now{};
  for (int i = 0; i < 3; ++i) old.send(1), server.send(1);
  carry(old, server, now);
  const std::vector<Wire> late_from_old = [&] {
    old.send(1);
    return old.poll(now);
  }();
  const std::vector<Wire> late_to_old = server.poll(now);
  REQUIRE(late_to_old.size() == 3);

  End fresh(1);
  // Frames for the old incarnation are dropped, but answered, so that their sender hears of the new incarnation.
  for (const Wire& wire : late_to_old) fresh.take(wire.message, now);
  CHECK(fresh.taken == 0);
  CHECK(fresh.link.counts().strangers == 3);
  server.taken = 0;
  carry(fresh, server, now);
  CHECK(server.link.peer_incarnation() == 1);
  CHECK(server.link.all_arrived());  // dropped: the layers above know what they have to say to a new peer

  for (const Wire& wire : late_from_old) server.take(wire.message, now);
  CHECK(server.taken == 0);
  server.sent = 0;
  fresh.send(1);
  server.send(1);
  for (int i = 0; i < 3; ++i) carry(fresh, server, now), carry(server, fresh, now);
  CHECK(server.taken == 1);
  CHECK(fresh.taken == 1);
  CHECK(fresh.link.all_arrived());
  CHECK(server.link.all_arrived());
}

TEST_CASE("who knows its peer's incarnation is understood at once") {
  End server;
  End fresh(3);
  server.link.meet(3);
  server.send(1);
  carry(server, fresh, Moment{});
  CHECK(fresh.taken == 1);
  server.link.meet(2);
  CHECK(server.link.peer_incarnation() == 3);
}

TEST_CASE("a payload is kept until it has arrived, and longer where a copy of it may still be in a queue") {
  End sender;
  End receiver;
  auto payload = std::make_shared<std::vector<std::byte>>(8, std::byte{0});
  const std::weak_ptr<std::vector<std::byte>> watch = payload;
  FrameHeader header{.type = FrameType::message};
  const std::span<const std::byte> view(*payload);
  sender.link.send(header, view, std::move(payload));
  const bool twice = GENERATE(false, true);
  carry(sender, receiver, Moment{});
  if (twice) CHECK(sender.poll(Moment{} + 20ms).size() == 1);
  CHECK(!watch.expired());
  carry(receiver, sender, Moment{} + 21ms);
  CHECK(watch.expired() == !twice);
  sender.link.release();
  CHECK(watch.expired());
}
