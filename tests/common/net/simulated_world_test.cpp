// The simulated network as a state machine, without threads: which peer goes on, when, and with which message.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/simulated_world.h>

using namespace psring;
using namespace psring::net;
using namespace std::chrono_literals;

namespace {

constexpr Nanoseconds kDelay = 100us;
constexpr std::size_t kBytes = 872;  // with the header 1000 bytes: 8 us at 1 Gbit/s
constexpr Nanoseconds kCardTime = 8us;

SimulatedNetwork::Options workers(std::uint32_t count) {
  SimulatedNetwork::Options options;
  for (std::uint32_t rank = 0; rank < count; ++rank) options.peers.push_back({Role::worker, rank});
  return options;
}

void send(SimulatedWorld& world, std::size_t from, std::size_t to, std::uint64_t step = 0) {
  const std::vector<std::byte> payload(kBytes);
  world.send(from, to, {.type = FrameType::message, .step = step, .payload_bytes = kBytes}, payload);
}

std::string error_of(SimulatedWorld& world, std::size_t place) {
  try {
    world.take(place);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the receiver goes on when the frame has arrived") {
  SimulatedWorld world(workers(2));
  send(world, 0, 1, 7);
  for (const std::size_t place : {0, 1}) world.begin_wait(place, kNever);
  REQUIRE(world.next_to_run() == 1);
  CHECK(world.now() - Moment{} == kDelay + kCardTime);
  world.end_wait(1);
  const auto message = world.take(1);
  REQUIRE(message);
  CHECK(message->header.step == 7);
  CHECK(message->payload.size() == kBytes);
  CHECK_FALSE(world.has_news(1));
}

TEST_CASE("a wait ends at its deadline, and a look takes 1 us") {
  SimulatedWorld world(workers(2));
  world.begin_wait(0, Moment{} + 5ms);
  world.begin_wait(1, Moment::min());
  REQUIRE(world.next_to_run() == 1);
  CHECK(world.now() - Moment{} == 1us);
  world.end_wait(1);
  CHECK_FALSE(world.take(1));
  CHECK(world.end(1) == SimulatedWorld::End::done);
  REQUIRE(world.next_to_run() == 0);
  CHECK(world.now() - Moment{} == 5ms);
}

TEST_CASE("a message ends a wait, but no sleep") {
  SimulatedWorld world(workers(2));
  CHECK_FALSE(world.begin_sleep(1, Moment{}));
  send(world, 0, 1);
  world.begin_wait(0, Moment{} + 1ms);
  REQUIRE(world.begin_sleep(1, Moment{} + 3ms));
  REQUIRE(world.next_to_run() == 0);
  CHECK(world.now() - Moment{} == 1ms);
  world.end_wait(0);
  world.begin_wait(0, kNever);
  REQUIRE(world.next_to_run() == 1);
  CHECK(world.now() - Moment{} == 3ms);
}

TEST_CASE("frames that wait for the card are in flight, and a sender that saw them goes on when one has left") {
  SimulatedWorld world(workers(2));
  CHECK(world.window_bytes(0, 1) == 1'250'000);  // 10 ms at 1 Gbit/s
  for (int i = 0; i < 3; ++i) send(world, 0, 1);
  world.begin_wait(1, kNever);
  CHECK(world.waiting_bytes(0, 1) == 3 * kBytes);
  CHECK(world.waiting_bytes(1, 0) == 0);
  world.begin_wait(0, kNever);
  REQUIRE(world.next_to_run() == 0);  // the first frame begins to leave at once
  CHECK(world.now() - Moment{} == 0us);
  world.end_wait(0);
  CHECK_FALSE(world.take(0));
  CHECK(world.waiting_bytes(0, 1) == 2 * kBytes);
  world.begin_wait(0, kNever);
  REQUIRE(world.next_to_run() == 0);
  CHECK(world.now() - Moment{} == kCardTime);
  world.end_wait(0);
  CHECK_FALSE(world.take(0));
  world.begin_wait(0, kNever);  // has not looked again: the third frame wakes nobody
  REQUIRE(world.next_to_run() == 1);
  CHECK(world.now() - Moment{} == kDelay + kCardTime);
  CHECK(world.waiting_bytes(0, 1) == 0);
}

TEST_CASE("a death is told once after the delay, and frames in flight to the dead peer are dropped") {
  SimulatedWorld world(workers(2));
  send(world, 0, 1, 1);
  world.kill(1, 2ms);
  CHECK(world.dead(1));
  CHECK(error_of(world, 1) == "worker 1 has died");
  REQUIRE(world.end(1) == SimulatedWorld::End::again);
  world.begin_wait(0, kNever);
  REQUIRE(world.next_to_run() == 0);
  CHECK(world.now() - Moment{} == kDelay);
  CHECK(error_of(world, 0) == "worker 1: the link is closed");
  world.end_wait(0);
  world.begin_wait(0, kNever);
  REQUIRE(world.next_to_run() == 1);
  CHECK(world.now() - Moment{} == 2ms);
  CHECK(world.incarnation(1) == 1);
  CHECK_FALSE(world.has_news(1));
}

TEST_CASE("peers that wait for each other are stuck, and all are told") {
  SimulatedWorld world(workers(3));
  CHECK(world.end(1) == SimulatedWorld::End::done);
  for (const std::size_t place : {0, 2}) world.begin_wait(place, kNever);
  for (int i = 0; i < 2; ++i) {
    const std::optional<std::size_t> place = world.next_to_run();
    REQUIRE(place);
    CHECK(error_of(world, *place) == "deadlock at 0.000000 s: workers 0, 2 wait; ended: 1");
    CHECK(world.end(*place) == SimulatedWorld::End::done);
  }
  CHECK_FALSE(world.next_to_run());
}

TEST_CASE("events come by time, and the seed orders the events of one moment") {
  const auto order = [](std::uint64_t seed) {
    SeededDraws draws(seed);
    EventQueue events(draws);
    CHECK(events.next_time() == kNever);
    events.add({.time = Moment{} + 2s, .from = 9});
    for (std::size_t from = 0; from < 3; ++from) events.add({.time = Moment{} + 1s, .from = from});
    std::vector<std::size_t> taken;
    CHECK(events.next_time() == Moment{} + 1s);
    while (!events.empty()) taken.push_back(events.take().from);
    return taken;
  };
  std::vector<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    CHECK(order(seed) == order(seed));
    CHECK(order(seed).back() == 9);
    orders.push_back(order(seed));
  }
  std::sort(orders.begin(), orders.end());
  CHECK(std::unique(orders.begin(), orders.end()) - orders.begin() == 6);
}

TEST_CASE("a wire without faults delivers each frame once, and a wire with all faults by their probability") {
  const auto carried = [](const WireFaults& faults, std::size_t payload_bytes) {
    SeededDraws draws(3);
    LossyWire wire(faults, draws, std::make_shared<BlockPool>());
    const std::vector<std::byte> payload(payload_bytes);
    std::array<int, 3> counts{};  // copies, corrupted copies, late copies
    for (int i = 0; i < 1000; ++i)
      wire.carry({.header = {}, .payload = payload}, [&](Nanoseconds late, const std::shared_ptr<Message>& message) {
        const bool same = message->header.step == 0 && std::all_of(message->payload.begin(), message->payload.end(),
                                                                   [](std::byte byte) { return byte == std::byte{}; });
        counts[0] += 1;
        counts[1] += same ? 0 : 1;
        counts[2] += late > Nanoseconds(0) ? 1 : 0;
        CHECK(late <= faults.extra_delay);
      });
    return counts;
  };
  CHECK(carried({}, 8) == std::array{1000, 0, 0});
  CHECK(carried({.drop = 1}, 8) == std::array{0, 0, 0});
  CHECK(carried({.duplicate = 1}, 8) == std::array{2000, 0, 0});
  CHECK(carried({.corrupt = 1}, 8) == std::array{1000, 1000, 0});
  CHECK(carried({.corrupt = 1}, 0) == std::array{1000, 1000, 0});
  CHECK(carried({.extra_delay = 1ms}, 8)[2] > 990);
}

TEST_CASE("a frame that does not fit into its link's buffer waits until the receiver takes another") {
  SimulatedNetwork::Options options = workers(2);
  options.link_bytes = 2 * (kHeaderBytes + kBytes);
  options.lends_buffers = GENERATE(false, true);
  SimulatedWorld world(options);
  for (std::uint64_t step = 0; step < 3; ++step) send(world, 0, 1, step);
  CHECK(world.waiting_bytes(0, 1) == 3 * kBytes);
  CHECK(world.end(0) == SimulatedWorld::End::done);
  std::vector<Message> kept;
  for (std::uint64_t step = 0; step < 2; ++step) {
    world.begin_wait(1, kNever);
    REQUIRE(world.next_to_run() == 1);
    world.end_wait(1);
    kept.push_back(*world.take(1));
    CHECK(kept.back().header.step == step);
  }
  world.begin_wait(1, kNever);
  REQUIRE(world.next_to_run() == 1);
  world.end_wait(1);
  if (options.lends_buffers) {  // the third frame has no room while both are kept
    CHECK(error_of(world, 1).starts_with("deadlock at "));
  } else {
    CHECK(world.take(1)->header.step == 2);
  }
  CHECK(kept[0].payload.size() == kBytes);
}

TEST_CASE("a frame that is larger than its link's buffer has the buffer for itself") {
  SimulatedNetwork::Options options = workers(2);
  options.link_bytes = 100;
  SimulatedWorld world(options);
  for (std::uint64_t step = 0; step < 3; ++step) send(world, 0, 1, step);
  CHECK(world.end(0) == SimulatedWorld::End::done);
  for (std::uint64_t step = 0; step < 3; ++step) {
    world.begin_wait(1, kNever);
    REQUIRE(world.next_to_run() == 1);
    world.end_wait(1);
    CHECK(world.take(1)->header.step == step);
    CHECK_FALSE(world.has_news(1));
  }
}
