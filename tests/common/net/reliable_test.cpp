// The transport over a reliable link: threads in a process, and frames of each lost, doubled, overtaken and changed.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/faulty.h>
#include <psring/common/net/sim/reliable.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/tests/support/in_process_network.h>

using namespace psring;
using namespace psring::net;
using namespace std::chrono_literals;

namespace {

constexpr Peer kServer{Role::server, 0};
constexpr Peer kWorker{Role::worker, 0};
const SystemClock kClock;

/// A process's stack of transports.
struct End {
  End(InProcessNetwork& network, Peer self, const FrameFaults& faults, bool keeper = true)
      : inner(network.endpoint(self, beneath)),
        faulty(make_faulty_transport(*inner, self, faults)),
        transport(make_reliable_transport(
            faulty,
            {.link = {.first_retry = 1ms}, .clock = &kClock, .ledger = &ledger, .keeper = keeper, .linger = 10s})) {}

  ByteLedger beneath;
  ByteLedger ledger;
  std::unique_ptr<Transport> inner;
  std::shared_ptr<Transport> faulty;
  std::unique_ptr<ReliableTransport> transport;
};

void send(Transport& transport, Peer to, std::uint64_t step, std::size_t bytes) {
  // As an owner may: the payload is gone once it was sent.
  const std::vector<std::byte> payload(bytes, static_cast<std::byte>(step));
  transport.send(to, {.type = FrameType::message, .dtype = DType::u8, .step = step}, payload);
}

std::uint64_t take(Transport& transport, std::uint64_t step) {
  for (;;) {
    const auto message = transport.receive(kClock.now() + 20s);
    if (!message) continue;
    REQUIRE(message->header.step == step);
    REQUIRE(message->reply_space.empty());
    REQUIRE(std::ranges::count(message->payload, static_cast<std::byte>(step)) == std::ssize(message->payload));
    return message->payload.size();
  }
}

constexpr FrameFaults kMany{.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1, .seed = 3};

}  // namespace

TEST_CASE("questions and answers pass, and are counted once") {
  const bool keeper = GENERATE(true, false);
  constexpr std::uint64_t kFrames = 400;
  InProcessNetwork network;
  End server(network, kServer, kMany, keeper);
  End worker(network, kWorker, kMany, keeper);
  std::thread thread([&] {
    for (std::uint64_t i = 0; i < kFrames; ++i) {
      take(*server.transport, i);
      send(*server.transport, kWorker, i, i % 3 == 0 ? 0 : i * 10);
    }
    server.transport->drain(kClock.now() + 20s);
  });
  for (std::uint64_t i = 0; i < kFrames; ++i) send(*worker.transport, kServer, i, 100);
  std::uint64_t received = 0;
  for (std::uint64_t i = 0; i < kFrames; ++i) received += take(*worker.transport, i);
  worker.transport->drain(kClock.now() + 20s);
  thread.join();
  const auto total = [](const End& end, ByteLedger::Direction direction, const char* operation) {
    return end.ledger.total(direction, operation);
  };
  CHECK(total(worker, ByteLedger::Direction::sent, "message").payload == 100 * kFrames);
  CHECK(total(worker, ByteLedger::Direction::sent, "message").messages == kFrames);
  CHECK(total(server, ByteLedger::Direction::received, "message").payload == 100 * kFrames);
  CHECK(total(worker, ByteLedger::Direction::received, "message").payload == received);
  CHECK(total(worker, ByteLedger::Direction::sent, "retransmitted").messages > 10);
  CHECK(total(worker, ByteLedger::Direction::sent, "retransmitted").payload == 0);
  CHECK(total(worker, ByteLedger::Direction::sent, "retransmitted").framing > 100 * 10);
}

TEST_CASE("the last frame arrives though it is lost and its sender ends") {
  // Seed 0 .. 19 at one half: in many of them it is lost, and its acknowledgement, too.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    InProcessNetwork network;
    auto server = std::make_unique<End>(network, kServer, FrameFaults{.drop = 0.5, .seed = seed});
    auto worker = std::make_unique<End>(network, kWorker, FrameFaults{.drop = 0.5, .seed = seed});
    send(*worker->transport, kServer, 0, 10);
    std::thread thread([&] { worker.reset(); });
    CHECK(take(*server->transport, 0) == 10);
    server.reset();  // its acknowledgement goes before it does, or its link does, which is as good
    thread.join();
  }
}

TEST_CASE("a sender that does something else is a sender all the same") {
  // The worker's frame is lost at first, and the worker waits for its effect elsewhere than in the transport.
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    InProcessNetwork network;
    End server(network, kServer, {});
    End worker(network, kWorker, {.drop = 0.7, .seed = seed});
    std::thread thread([&] { take(*server.transport, 0); });
    send(*worker.transport, kServer, 0, 10);
    thread.join();
  }
}

TEST_CASE("wake ends a receive that waits, and the next where none does") {
  const bool keeper = GENERATE(true, false);
  InProcessNetwork network;
  End server(network, kServer, {}, keeper);
  server.transport->wake();
  CHECK(!server.transport->receive(kNever));
  std::thread thread([&] { server.transport->wake(); });
  CHECK(!server.transport->receive(kNever));
  thread.join();
}

TEST_CASE("a wake that comes as receive looks for what is there ends it, too") {
  SimulatedNetwork network({.peers = {kWorker, kServer}});
  const auto transport =
      make_reliable_transport({std::shared_ptr<void>(), &network.transport(kWorker)},
                              {.clock = &network.clock(), .keeper = false, .linger = Nanoseconds(0)});
  network.run([&](std::size_t place) {
    if (place == 0) {
      CHECK_FALSE(transport->receive(kNever));
      CHECK(network.clock().now() - Moment{} < 10us);
    } else {
      network.clock().sleep_until(Moment{} + 500ns);  // a look takes 1 us
      transport->wake();
    }
  });
}

TEST_CASE("what has not left is in flight, what has is not") {
  InProcessNetwork network;
  End server(network, kServer, {}, false);
  End worker(network, kWorker, {}, false);
  for (std::uint64_t i = 0; i < 40; ++i) send(*worker.transport, kServer, i, 100);
  CHECK(worker.transport->in_flight_bytes(kServer) == 800);  // beyond a window of 32
  for (std::uint64_t i = 0; i < 32; ++i) take(*server.transport, i);
  CHECK(!server.transport->receive(Moment::min()));
  CHECK(!worker.transport->receive(Moment::min()));
  CHECK(worker.transport->in_flight_bytes(kServer) == 0);
  for (std::uint64_t i = 32; i < 40; ++i) take(*server.transport, i);
}

TEST_CASE("a peer that is not there is lost to who sends to it") {
  InProcessNetwork network;
  End worker(network, kWorker, {});
  try {
    send(*worker.transport, kServer, 0, 10);
    FAIL("it was sent");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer_lost);
  }
}

TEST_CASE("what faults do follows from the seed and the sender") {
  const auto arrived = [](std::uint64_t seed, const FrameFaults& what) {
    FrameFaults faults = what;
    faults.seed = seed;
    InProcessNetwork network;
    ByteLedger ledger;
    const auto server = network.endpoint(kServer, ledger);
    const auto inner = network.endpoint(kWorker, ledger);
    const auto faulty = make_faulty_transport(*inner, kWorker, faults);
    for (std::uint64_t i = 0; i < 1000; ++i) send(*faulty, kServer, i, 1);
    std::vector<std::pair<std::uint64_t, std::byte>> steps;
    while (const auto message = server->receive(Moment::min()))
      steps.push_back({message->header.step, message->payload[0]});
    return steps;
  };
  const auto all = arrived(1, {});
  REQUIRE(all.size() == 1000);
  CHECK(arrived(1, kMany) == arrived(1, kMany));
  CHECK(arrived(1, kMany) != arrived(2, kMany));
  const auto near = [](std::size_t count) { return count > 60 && count < 140; };
  CHECK(near(1000 - arrived(1, {.drop = 0.1}).size()));
  CHECK(near(arrived(1, {.duplicate = 0.1}).size() - 1000));
  const auto reordered = arrived(1, {.reorder = 0.1});
  CHECK(reordered != all);
  CHECK(reordered.size() >= 999);
  const auto corrupt = arrived(1, {.corrupt = 0.1});
  std::size_t other = 0;
  for (std::size_t i = 0; i < 1000; ++i) other += corrupt[i] != all[i] ? 1 : 0;
  CHECK(near(other));
}
