// A planned group predicts what the real groups predict.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/ring/planned_group.h>
#include <psring/tests/support/ring_worlds.h>

using namespace psring;
using namespace psring::ring;
using Catch::Contains;
using test::run_ranks;

namespace {

/// The hosts of the ranks in the hierarchical worlds of ring_worlds.cpp.
const std::vector<std::size_t> kHosts = {0, 0, 1, 2, 2, 2};

PlannedRanks ranks_of(const std::string& world, std::size_t ranks) {
  if (world == "met-hierarchical") return {.host_of = {kHosts.begin(), kHosts.begin() + static_cast<long>(ranks)}};
  return {.host_of = std::vector<std::size_t>(ranks, 0), .messages = world != "shm"};
}

Parts even_parts(std::size_t count, std::size_t ranks) {
  Parts parts;
  for (std::size_t r = 0; r < ranks; ++r) parts.push_back({{r * count / ranks, (r + 1) * count / ranks}});
  return parts;
}

void check_equal(const ProcessGroup& planned, const ProcessGroup& real) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{3000000}}) {
    const Parts parts = even_parts(count, real.size());
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
      const Cost expected = real.predict(collective, count, {}, parts, 0);
      const Cost cost = planned.predict(collective, count, {}, parts, 0);
      CHECK(cost.sent == expected.sent);
      CHECK(cost.received == expected.received);
      CHECK(cost.latencies == expected.latencies);
    }
  }
  CHECK(planned.sums_in_rank_order(Collective::all_reduce, {}) == real.sums_in_rank_order(Collective::all_reduce, {}));
}

}  // namespace

TEST_CASE("planned groups and their subgroups predict the costs of real ones") {
  for (const std::string world : {"shm", "tcp", "met-hierarchical"}) {
    for (const std::size_t ranks : {1, 2, 3, 6}) {
      CAPTURE(world, ranks);
      run_ranks(world, ranks, [&](ProcessGroup& group) {
        const auto planned = make_planned_group(ranks_of(world, ranks), group.rank());
        REQUIRE(planned->rank() == group.rank());
        check_equal(*planned, group);
        std::vector<std::size_t> colours;
        for (std::size_t r = 0; r < ranks; ++r) colours.push_back(r % 2);
        const auto part = group.split(colours);
        const auto planned_part = planned->split(colours);
        REQUIRE(planned_part->rank() == part->rank());
        REQUIRE(planned_part->size() == part->size());
        check_equal(*planned_part, *part);
        float sum = 1;  // the part works, although its ranks exchanged no message to make it
        part->all_reduce(std::span(&sum, 1), ReduceOp::Kind::sum).wait();
        CHECK(sum == static_cast<float>(part->size()));
        group.barrier().wait();
      });
    }
  }
}

TEST_CASE("a planned group runs nothing") {
  const auto group = make_planned_group({.host_of = {0, 1}}, 1);
  float value = 1;
  CHECK_THROWS_WITH(group->all_reduce(std::span(&value, 1), ReduceOp::Kind::sum), Contains("planned"));
  CHECK_THROWS_AS(group->barrier(), Error);
}
