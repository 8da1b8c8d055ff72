#include <atomic>
#include <cmath>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/tests/support/ring_worlds.h>

using namespace psring;
using namespace psring::ring;
using Catch::Contains;
using psring::test::run_ranks;

namespace {

const std::vector<std::string> kWorlds = {"hierarchical", "hierarchical-background", "met-hierarchical"};

/// Values in (-1, 1) whose sums round.
std::vector<float> gradient_of(std::size_t rank, std::size_t count) {
  std::vector<float> values(count);
  std::uint32_t state = static_cast<std::uint32_t>(rank) * 977 + 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<std::int32_t>(state)) / 2147483648.0F;
  }
  return values;
}

/// All ranks' vectors after an all_reduce of what `make` gives them.
std::vector<std::vector<float>> reduced(const std::string& world, std::size_t ranks, ReduceOp::Kind op,
                                        const std::function<std::vector<float>(std::size_t)>& make) {
  std::vector<std::vector<float>> results(ranks);
  run_ranks(world, ranks, [&](ProcessGroup& group) {
    std::vector<float> values = make(group.rank());
    group.all_reduce(std::span(values), op).wait();
    results[group.rank()] = values;
  });
  return results;
}

struct Ended {
  std::optional<ErrorKind> kind;
  std::string text;
};

/// How each rank ends.
std::vector<Ended> ends(const std::string& world, std::size_t ranks, const GroupOptions& options,
                        const std::function<void(ProcessGroup&)>& body) {
  std::vector<Ended> ended(ranks);
  run_ranks(
      world, ranks,
      [&](ProcessGroup& group) {
        try {
          body(group);
        } catch (const Error& error) {
          ended[group.rank()] = {error.kind(), error.what()};
        }
      },
      options);
  return ended;
}

}  // namespace

TEST_CASE("each rank of the largest host has a column, others have several") {
  const std::vector<std::size_t> host_of{7, 7, 3, 5, 5, 5};
  CHECK(Hierarchy(host_of, 0).hosts() == 3);
  CHECK(Hierarchy(host_of, 0).columns() == 3);
  CHECK(Hierarchy(host_of, 4).host() == 2);
  CHECK(Hierarchy(host_of, 4).place_of(4) == 1);
  CHECK(Hierarchy(host_of, 0).own_columns() == std::vector<std::size_t>{0, 2});
  CHECK(Hierarchy(host_of, 1).own_columns() == std::vector<std::size_t>{1});
  CHECK(Hierarchy(host_of, 2).own_columns() == std::vector<std::size_t>{0, 1, 2});
  CHECK(Hierarchy(host_of, 5).own_columns() == std::vector<std::size_t>{2});
  CHECK(Hierarchy(host_of, 0).column(0) == std::vector<std::size_t>{0, 2, 3});
  CHECK(Hierarchy(host_of, 0).column(2) == std::vector<std::size_t>{0, 2, 5});
  CHECK(Hierarchy({4, 4}, 1).columns() == 0);
}

TEST_CASE("a small vector takes the messages of one column") {
  const Hierarchy second({0, 0, 1}, 1);
  CHECK(second.stages(Collective::all_reduce, 1024, 4, {}, 0).between.front().range.empty());
  CHECK(second.stages(Collective::all_reduce, 1025, 4, {}, 0).between.front().range == Range{512, 1025});
}

TEST_CASE("sums are those in rank order but for rounding, the same at all ranks and at every run") {
  const std::string world = GENERATE(from_range(kWorlds));
  const std::size_t ranks = GENERATE(3, 4, 5, 8);
  const std::size_t count = GENERATE(1000, 100'003);
  CAPTURE(world, ranks, count);
  const auto make = [&](std::size_t rank) { return gradient_of(rank, count); };
  const auto results = reduced(world, ranks, ReduceOp::Kind::mean, make);
  const auto reference = reduced("shm", ranks, ReduceOp::Kind::mean, make).front();
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference += std::pow(double{results[0][i]} - double{reference[i]}, 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  CHECK(std::sqrt(difference) <= 1e-6 * std::sqrt(norm));
  for (const auto& result : results) CHECK((result == results.front()));
  CHECK((reduced(world, ranks, ReduceOp::Kind::mean, make) == results));
}

TEST_CASE("a mean is divided once") {
  const std::string world = GENERATE(from_range(kWorlds));
  const std::size_t ranks = GENERATE(3, 5, 8);
  const auto make = [](std::size_t rank) { return std::vector<float>(5000, static_cast<float>(3 * rank + 1)); };
  CHECK((reduced(world, ranks, ReduceOp::Kind::mean, make) == reduced("shm", ranks, ReduceOp::Kind::mean, make)));
}

TEST_CASE("it says how it goes") {
  std::string text;
  run_ranks("met-hierarchical", 5, [&](ProcessGroup& group) {
    if (group.rank() == 0) text = group.describe(Collective::all_reduce, 1 << 20, {});
    group.barrier().wait();
  });
  CHECK_THAT(
      text, Contains("all_reduce: hierarchical, 3 hosts; shared memory inside, ring over tcp") && Contains(" between"));
  run_ranks("met-hierarchical", 2, [&](ProcessGroup& group) {
    if (group.rank() == 0) text = group.describe(Collective::all_reduce, 1 << 20, {});
  });
  CHECK(text == "all_reduce: direct, shared memory");
}

TEST_CASE("bytes in shared memory are booked with the worker, not with its place on the host") {
  ByteLedger ledger;
  GroupOptions options;
  options.ledger = &ledger;
  run_ranks(
      "met-hierarchical", 5,
      [](ProcessGroup& group) {
        std::vector<float> values(100'000);
        group.all_reduce(std::span(values), ReduceOp()).wait();
        group.barrier().wait();
        if (group.rank() == 4) group.account();  // its host has workers 3 and 4
      },
      options);
  const auto counts = ledger.snapshot();
  REQUIRE(!counts.empty());
  for (const auto& [key, count] : counts) {
    CHECK(key.operation == "all_reduce");
    CHECK(key.peer == "worker 3");
  }
}

TEST_CASE("who calls something else is named to all ranks of all hosts") {
  const std::string world = GENERATE(from_range(kWorlds));
  const std::size_t other = GENERATE(1, 2, 4);
  CAPTURE(world, other);
  const auto ended = ends(world, 5, {}, [&](ProcessGroup& group) {
    group.barrier().wait();
    std::vector<float> values(group.rank() == other ? 3000 : 4000);
    group.all_reduce(std::span(values), ReduceOp()).wait();
  });
  for (const Ended& each : ended) {
    CHECK(each.kind == ErrorKind::usage);
    CHECK_THAT(each.text, Contains("operation #1") && Contains("rank " + std::to_string(other)) &&
                              Contains("all_reduce of 3000") && Contains("all_reduce of 4000"));
  }
}

TEST_CASE("ranks are told who has ended its program without their call") {
  const std::string world = GENERATE(from_range(kWorlds));
  const bool barrier = GENERATE(false, true);
  CAPTURE(world, barrier);
  const auto ended = ends(world, 5, {}, [&](ProcessGroup& group) {
    group.barrier().wait();
    std::vector<float> values(100);
    if (group.rank() == 2)
      group.last_barrier().wait();
    else if (barrier)
      group.barrier().wait();
    else
      group.all_reduce(std::span(values), ReduceOp()).wait();
  });
  for (const Ended& each : ended) {
    CHECK(each.kind == ErrorKind::peer_lost);
    CHECK_THAT(each.text, Contains("rank 2 has ended its program without this call") &&
                              Contains(barrier ? ": barrier: " : ": all_reduce of 100 f32 (sum): "));
  }
  for (const Ended& each : ends(world, 5, {}, [](ProcessGroup& group) { group.last_barrier().wait(); }))
    CHECK(each.text.empty());
}

TEST_CASE("a rank that does not come ends the wait of all others, who say for whom they waited") {
  const std::string world = GENERATE(from_range(kWorlds));
  GroupOptions options;
  options.op_timeout = std::chrono::milliseconds(60);
  std::latch others(4);
  const auto ended = ends(world, 5, options, [&](ProcessGroup& group) {
    std::vector<float> values(20'000);
    if (group.rank() == 4) others.wait();
    try {
      group.all_reduce(std::span(values), ReduceOp()).wait();
    } catch (const Error&) {
      if (group.rank() != 4) others.count_down();
      throw;
    }
  });
  for (const Ended& each : ended) {
    CHECK(each.kind == ErrorKind::timeout);
    CHECK_THAT(each.text, Contains("in all_reduce #0 (78.1 KiB), waiting for rank ") && Contains(": nothing for "));
  }
}

TEST_CASE("what the job knows of a lost worker is told with what was waited in") {
  const std::string world = GENERATE(from_range(kWorlds));
  std::atomic<bool> lost{false};
  GroupOptions options;
  options.check = [&] {
    if (lost) fail(ErrorKind::peer_lost, "worker 3 was ended by signal 9");
  };
  std::latch others(4);
  const auto ended = ends(world, 5, options, [&](ProcessGroup& group) {
    if (group.rank() == 3) {
      lost = true;
      return others.wait();
    }
    std::vector<float> values(20'000);
    try {
      group.all_reduce(std::span(values), ReduceOp()).wait();
    } catch (const Error&) {
      others.count_down();
      throw;
    }
  });
  for (std::size_t r = 0; r < 5; ++r) {
    if (r == 3) continue;
    CHECK(ended[r].kind == ErrorKind::peer_lost);
    CHECK_THAT(ended[r].text, Contains("in all_reduce #0 (78.1 KiB), waiting for rank ") &&
                                  Contains("worker 3 was ended by signal 9"));
  }
}

TEST_CASE("who waits for a message goes on with collectives that others wait in") {
  const std::string world = GENERATE(from_range(kWorlds));
  run_ranks(world, 5, [](ProcessGroup& group) {
    std::vector<float> values(50'000, 1);
    std::vector<float> large(100'000, static_cast<float>(group.rank()));
    const std::size_t next = (group.rank() + 1) % 5;
    const std::size_t before = (group.rank() + 4) % 5;
    for (int round = 0; round < 20; ++round) {
      Work reduce = group.all_reduce(std::span(values), ReduceOp::Kind::mean);
      Work sent = group.send(std::span<const float>(large), next);
      std::vector<float> got(large.size());
      if (group.rank() % 2 == 0) {
        group.recv(std::span(got), before).wait();
        sent.wait();
        reduce.wait();
      } else {
        reduce.wait();
        group.recv(std::span(got), before).wait();
        sent.wait();
      }
      if (got.back() != static_cast<float>(before)) throw std::runtime_error("message");
    }
    if (std::abs(values.back() - 1) > 1e-6F) throw std::runtime_error("mean");
  });
}
