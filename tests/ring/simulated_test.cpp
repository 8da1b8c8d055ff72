#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/reliable.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/ring/link/group.h>

using namespace psring;
using namespace psring::ring;
using Catch::Contains;
using net::SimulatedNetwork;
using namespace std::chrono_literals;

namespace {

constexpr Nanoseconds kDelay = 100us;
constexpr double kBytesPerSecond = 1e9 / 8;

Nanoseconds time_of(std::size_t bytes) { return Nanoseconds(std::llround(static_cast<double>(bytes) * 8)); }

/// The result of a run: each rank's vector or error, and the time of each.
struct Run {
  std::vector<std::vector<float>> vectors;
  std::vector<Nanoseconds> times;
  std::vector<std::string> errors;
  std::vector<std::optional<ErrorKind>> kinds;
};

Run run_groups(const SimulatedNetwork::Options& options, LinkOptions link,
               const std::function<void(ProcessGroup&, std::vector<float>&)>& body) {
  SimulatedNetwork network(options);
  Run run{std::vector<std::vector<float>>(options.ranks), std::vector<Nanoseconds>(options.ranks),
          std::vector<std::string>(options.ranks), std::vector<std::optional<ErrorKind>>(options.ranks)};
  link.tuning = Tuning::built_in();
  link.clock = &network.clock();
  network.run([&](std::size_t rank) {
    const auto group = make_link_group(network.transport(rank), rank, options.ranks, link);
    try {
      body(*group, run.vectors[rank]);
    } catch (const Error& error) {
      run.errors[rank] = error.what();
      run.kinds[rank] = error.kind();
    }
    run.times[rank] = network.clock().now() - Moment{};
  });
  return run;
}

std::function<void(ProcessGroup&, std::vector<float>&)> reduce_of(std::size_t count) {
  return [count](ProcessGroup& group, std::vector<float>& values) {
    for (std::size_t i = 0; i < count; ++i)
      values.push_back(1.0F / static_cast<float>(1 + (i * 31 + group.rank() * 17) % 1009));
    group.all_reduce(std::span(values), ReduceOp::Kind::mean).wait();
  };
}

}  // namespace

TEST_CASE("a ring's all_reduce takes the time that its bytes take") {
  const std::size_t ranks = GENERATE(2, 4, 8);
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  constexpr std::size_t kSegment = 262'144;
  CAPTURE(ranks);
  const Run run = run_groups({.ranks = ranks}, {.algorithm = Algorithm::ring, .segment_bytes = kSegment},
                             reduce_of(kBytes / sizeof(float)));
  const std::size_t frames = 2 * (ranks - 1) * (kBytes / ranks / kSegment);
  // The card is never idle but for the first frame's delay, as a part takes longer than a message's way.
  const Nanoseconds exact = frames * time_of(kSegment + net::kHeaderBytes) + kDelay;
  const double formula = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * kBytes / kBytesPerSecond;
  for (const Nanoseconds time : run.times) {
    CHECK(time == exact);
    CHECK(seconds(time) == Approx(formula).epsilon(0.01));
  }
}

TEST_CASE("a small vector takes the time of 2 (n - 1) messages") {
  const std::size_t ranks = GENERATE(2, 4, 8);
  const Run run = run_groups({.ranks = ranks}, {.algorithm = Algorithm::ring, .segment_bytes = 4096}, reduce_of(1024));
  for (const Nanoseconds time : run.times)
    CHECK(time == 2 * (ranks - 1) * (kDelay + time_of(4096 / ranks + net::kHeaderBytes)));
}

TEST_CASE("a rerun has the same virtual time and the same bits") {
  const auto algorithm =
      GENERATE(values({Algorithm::ring, Algorithm::exchange, Algorithm::doubling, Algorithm::halving_doubling}));
  for (const std::uint64_t seed : {0, 1, 2}) {
    const SimulatedNetwork::Options options{.ranks = 5, .seed = seed};
    const LinkOptions link{.algorithm = algorithm, .segment_bytes = 4096};
    const Run first = run_groups(options, link, reduce_of(20'000));
    const Run again = run_groups(options, link, reduce_of(20'000));
    CHECK((first.vectors == again.vectors));
    CHECK(first.times == again.times);
  }
}

TEST_CASE("the seed decides among frames of one moment, and again alike") {
  const auto order = [](std::uint64_t seed) {
    SimulatedNetwork network({.ranks = 4, .seed = seed});
    std::vector<std::uint32_t> senders;
    network.run([&](std::size_t rank) {
      if (rank > 0) return network.transport(rank).send({net::Role::worker, 0}, {.type = net::FrameType::message}, {});
      while (senders.size() < 3) senders.push_back(network.transport(0).receive(kNever)->header.sender_rank);
    });
    return senders;
  };
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    CHECK(order(seed) == order(seed));
    orders.insert(order(seed));
  }
  CHECK(orders.size() == 6);
}

TEST_CASE("a card takes one frame after the other, each way") {
  SimulatedNetwork network({.ranks = 3});
  std::vector<Nanoseconds> arrivals;
  const std::vector<std::byte> payload(10'000);
  network.run([&](std::size_t rank) {
    net::Transport& transport = network.transport(rank);
    if (rank > 0)
      for (int i = 0; i < 2; ++i) transport.send({net::Role::worker, 0}, {.type = net::FrameType::message}, payload);
    while (rank == 0 && arrivals.size() < 4) {
      transport.receive(kNever);
      arrivals.push_back(network.clock().now() - Moment{});
    }
  });
  for (std::size_t i = 0; i < 4; ++i) CHECK(arrivals[i] == kDelay + (i + 1) * time_of(10'128));
  CHECK(network.bytes(1).sent_bytes() == 2 * 10'128);
  CHECK(network.bytes(0).received_bytes() == 4 * 10'128);
}

TEST_CASE("a rank that dies is told to the others after the link's delay") {
  const Run run = run_groups({.ranks = 4, .deaths = {{2, 10ms}}},
                             {.algorithm = Algorithm::ring, .segment_bytes = 262'144}, reduce_of(std::size_t{4} << 20));
  for (const std::size_t r : {0, 1, 3}) {
    CAPTURE(r);
    CHECK(run.times[r] == 10ms + kDelay);
    CHECK(run.kinds[r] == ErrorKind::peer_lost);
    CHECK(run.errors[r] == "[ring] rank " + std::to_string(r) + ": in all_reduce #0 (16.0 MiB), waiting for rank " +
                               std::to_string((r + 3) % 4) + ": worker 2: the link is closed");
  }
  CHECK(run.times[2] == 10ms);
}

TEST_CASE("a rank that never calls is waited for as long as the timeout says, in virtual time") {
  LinkOptions link{.algorithm = Algorithm::ring};
  link.group.op_timeout = 1s;
  const Run run = run_groups({.ranks = 3}, link, [](ProcessGroup& group, std::vector<float>& values) {
    if (group.rank() != 1) reduce_of(10'000)(group, values);
  });
  // It looks every 20 ms, and the first look after a second ends it: for the other one, too, which is told.
  for (const std::size_t r : {0, 2}) {
    CHECK(run.kinds[r] == ErrorKind::timeout);
    CHECK_THAT(run.errors[r],
               Contains("in all_reduce #0 (39.1 KiB), waiting for rank ") && Contains(": nothing for 1.0 s"));
    CHECK(run.times[r] >= 1s);
    CHECK(run.times[r] <= 1s + 40ms);
  }
}

TEST_CASE("where nobody can go on all are told who waits") {
  SECTION("without any deadline, at once") {
    SimulatedNetwork network({.ranks = 3});
    std::vector<std::string> errors(3);
    network.run([&](std::size_t rank) {
      if (rank == 1) return;
      try {
        network.transport(rank).receive(kNever);
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
    CHECK(errors[0] == "deadlock at 0.000000 s: workers 0, 2 wait; ended: 1");
    CHECK(errors[2] == errors[0]);
  }
  SECTION("with deadlines that bring nothing, after a while") {
    const Run run = run_groups({.ranks = 2, .patience = 5s}, {}, [](ProcessGroup& group, std::vector<float>& values) {
      values.resize(10);
      group.recv(std::span(values), 1 - group.rank()).wait();
    });
    for (const std::size_t r : {0, 1}) {
      CHECK(run.kinds[r] == ErrorKind::timeout);
      CHECK(run.times[r] == 5s);
      CHECK_THAT(run.errors[r], Contains("in recv #0 (40 B), waiting for rank " + std::to_string(1 - r) +
                                         ": deadlock at 5.000000 s: workers 0, 1 wait"));
    }
  }
}

namespace {

constexpr net::Peer kServer{net::Role::server, 0};
constexpr net::Peer kWorker{net::Role::worker, 0};

/// The frames of a worker that a server received: their steps, the first byte of each, and the times.
struct Arrivals {
  std::vector<std::uint64_t> steps;
  std::vector<int> bytes;
  std::vector<Nanoseconds> times;
  friend bool operator==(const Arrivals&, const Arrivals&) = default;
};

Arrivals arrivals(std::size_t count, std::uint64_t seed, const SimulatedNetwork::Trouble& trouble,
                  std::size_t payload_bytes = 1) {
  SimulatedNetwork network({.peers = {kWorker, kServer}, .seed = seed, .trouble = trouble});
  Arrivals seen;
  network.run([&](std::size_t place) {
    const std::vector<std::byte> payload(payload_bytes);
    if (place == 0)
      for (std::uint64_t step = 0; step < count; ++step)
        network.transport(kWorker).send(kServer, {.type = net::FrameType::message, .step = step}, payload);
    while (place == 1) {
      const auto message = network.transport(kServer).receive(network.clock().now() + 1s);
      if (!message) return;
      CHECK(message->header.sender() == kWorker);
      seen.steps.push_back(message->header.step);
      seen.bytes.push_back(payload_bytes == 0 ? 0 : std::to_integer<int>(message->payload[0]));
      seen.times.push_back(network.clock().now() - Moment{});
    }
  });
  return seen;
}

}  // namespace

TEST_CASE("frames are lost, doubled, changed and overtaken as the seed says, and again alike") {
  constexpr std::size_t kCount = 1000;
  const auto near = [](std::size_t count) { return count > 60 && count < 140; };
  const Arrivals all = arrivals(kCount, 1, {});
  CHECK(all.steps.size() == kCount);
  CHECK(std::is_sorted(all.steps.begin(), all.steps.end()));
  CHECK(near(kCount - arrivals(kCount, 1, {.drop = 0.1}).steps.size()));
  CHECK(near(arrivals(kCount, 1, {.duplicate = 0.1}).steps.size() - kCount));
  const Arrivals changed = arrivals(kCount, 1, {.corrupt = 0.1});
  CHECK(changed.steps == all.steps);
  CHECK(near(kCount - static_cast<std::size_t>(std::count(changed.bytes.begin(), changed.bytes.end(), 0))));
  const Arrivals empty = arrivals(kCount, 1, {.corrupt = 0.1}, 0);
  std::size_t other = 0;
  for (std::size_t i = 0; i < kCount; ++i) other += empty.steps[i] != i ? 1 : 0;
  CHECK(near(other));
  const Arrivals delayed = arrivals(kCount, 1, {.extra_delay = 10us});
  CHECK(delayed.steps.size() == kCount);
  CHECK(!std::is_sorted(delayed.steps.begin(), delayed.steps.end()));
  const SimulatedNetwork::Trouble much{.drop = 0.1, .duplicate = 0.1, .corrupt = 0.1, .extra_delay = 1ms};
  CHECK(arrivals(kCount, 1, much) == arrivals(kCount, 1, much));
  CHECK(!(arrivals(kCount, 1, much) == arrivals(kCount, 2, much)));
}

TEST_CASE("a group over reliable links reduces to the same bits, whatever the network does") {
  constexpr std::size_t kRanks = 3;
  const auto reduced = [](std::uint64_t seed, const SimulatedNetwork::Trouble& trouble) {
    SimulatedNetwork network({.ranks = kRanks, .seed = seed, .trouble = trouble});
    std::vector<std::vector<float>> vectors(kRanks);
    network.run([&](std::size_t rank) {
      const auto transport = net::make_reliable_transport({std::shared_ptr<void>(), &network.transport(rank)},
                                                          {.clock = &network.clock(), .keeper = false, .linger = 60s});
      LinkOptions link;
      link.tuning = Tuning::built_in();
      link.algorithm = Algorithm::ring;
      link.segment_bytes = 4096;
      link.clock = &network.clock();
      const auto group = make_link_group(*transport, rank, kRanks, link);
      for (int i = 0; i < 3; ++i) reduce_of(3000)(*group, vectors[rank]);
    });
    return vectors;
  };
  const auto quiet = reduced(1, {});
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    CHECK((reduced(seed, {.drop = 0.1, .duplicate = 0.1, .corrupt = 0.1, .extra_delay = 1ms}) == quiet));
}

TEST_CASE("who dies may come back, as another, to whom nothing comes that was for the one before") {
  SimulatedNetwork network(
      {.peers = {kWorker, kServer}, .deaths = {{.place = 1, .at = 10ms, .returns_after = 5ms}, {1, 30ms, 5ms}}});
  std::vector<std::pair<std::uint32_t, std::uint64_t>> got;  // by which life, which frame
  std::vector<Nanoseconds> began;
  std::vector<std::string> lost;
  network.run([&](std::size_t place) {
    net::Transport& transport = network.transport(place);
    const Clock& clock = network.clock();
    if (place == 1) {
      const std::uint32_t life = network.incarnation(1);
      began.push_back(clock.now() - Moment{});
      while (const auto message = transport.receive(clock.now() + 20ms)) got.push_back({life, message->header.step});
      return;
    }
    // At 0, 2, 4 ... 40 ms; one is on its way as the server dies.
    for (std::uint64_t step = 0; step <= 40; step += 2) {
      const Moment at = Moment{} + std::chrono::milliseconds(step) - (step == 10 || step == 30 ? 10us : 0us);
      clock.sleep_until(at);
      try {
        transport.receive(Moment::min());
      } catch (const Error& error) {
        lost.push_back(error.what());
      }
      transport.send(kServer, {.type = net::FrameType::message, .step = step}, {});
    }
  });
  CHECK(began == std::vector<Nanoseconds>{0ms, 15ms, 35ms});
  CHECK(lost == std::vector<std::string>(2, "server 0: the link is closed"));
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> expected = {{0, 0},  {0, 2},  {0, 4},  {0, 6},  {0, 8},
                                                                         {1, 16}, {1, 18}, {1, 20}, {1, 22}, {1, 24},
                                                                         {1, 26}, {1, 28}, {2, 36}, {2, 38}, {2, 40}};
  CHECK(got == expected);
}

TEST_CASE("who is killed in a run is dead until it comes back, though nobody else can go on") {
  const bool stuck = GENERATE(false, true);
  SimulatedNetwork network({.peers = {kWorker, kServer}, .limit = stuck ? Nanoseconds(3ms) : Nanoseconds::max()});
  std::vector<Nanoseconds> began;
  const auto run = [&] {
    network.run([&](std::size_t place) {
      const Clock& clock = network.clock();
      if (place == 1) {
        began.push_back(clock.now() - Moment{});
        while (network.incarnation(1) == 0) network.transport(1).receive(kNever);
        return;
      }
      clock.sleep_until(Moment{} + 1ms);
      network.kill(1, 5ms);
      network.kill(1);  // it is dead
      CHECK(network.dead(1));
      clock.sleep_until(Moment{} + 2ms);
      CHECK(network.dead(1));
      if (stuck) network.transport(0).receive(kNever);
      clock.sleep_until(Moment{} + 7ms);
      CHECK_FALSE(network.dead(1));
    });
  };
  if (stuck) {
    CHECK_THROWS_WITH(run(), Contains("link is closed") || Contains("deadlock"));
  } else {
    run();
    CHECK(began == std::vector<Nanoseconds>{0ms, 6ms});
  }
}

TEST_CASE("who is told of a deadlock is told by role, where there are others than workers") {
  SimulatedNetwork network({.peers = {kWorker, kServer}});
  std::string error;
  network.run([&](std::size_t place) {
    if (place == 0) return;
    try {
      network.transport(place).receive(kNever);
    } catch (const Error& thrown) {
      error = thrown.what();
    }
  });
  CHECK(error == "deadlock at 0.000000 s: server 0 wait; ended: worker 0");
}
