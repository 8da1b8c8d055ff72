// Whole jobs over bad networks, one for each seed. `scripts/simulate` runs more of them.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/simulate/simulation.h>
#include <psring/tests/support/job_names.h>

using namespace psring;
using test::Bug;
using test::draw_scenario;
using test::Examiner;
using test::Scenario;
using test::simulate;
using test::SimulatedRun;

TEST_CASE("2,000 jobs end as they would over a good network") {
  constexpr std::uint64_t kSeeds = 2000;
  Examiner examiner;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    if (const auto finding = examiner.examine(seed)) FAIL_CHECK(*finding << "; again: scripts/simulate 1 " << seed);
  const Examiner::Totals& totals = examiner.totals();
  CHECK(totals.retransmitted > kSeeds);  // there was trouble
  CHECK(totals.crashed > kSeeds / 4);
  CHECK(totals.promoted > 50);
  CHECK(totals.begun_anew > 50);
  CHECK(totals.shrunk > 20);
  CHECK(totals.shrunk_with_rows > 10);
}

TEST_CASE("a planted bug is found within 1,000 seeds") {
  const auto bug = GENERATE(Bug::early_answers, Bug::double_updates, Bug::double_rows, Bug::lent_buffers);
  constexpr std::uint64_t kSeeds = 1000;
  Examiner examiner;
  std::optional<std::string> finding;
  std::uint64_t seed = 0;
  while (!finding && seed < kSeeds) finding = examiner.examine(seed++, bug);
  INFO((finding ? *finding : "nothing found"));
  CHECK(finding);
  if (finding) CHECK_FALSE(examiner.examine(seed - 1));  // it was the bug
}

TEST_CASE("a seed is run again as it was, to the nanosecond and the bit") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const SimulatedRun first = simulate(draw_scenario(seed));
    CHECK(first == simulate(draw_scenario(seed)));
    CHECK(first.time > Nanoseconds(0));
  }
}

TEST_CASE("seeds draw all ways of training") {
  std::set<std::string> ways;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Scenario scenario = draw_scenario(seed);
    ways.insert(scenario.job.strategy + scenario.job.consistency + scenario.job.optimizer_on);
  }
  CHECK(ways.size() == 14);
}

TEST_CASE("500 processes train over links with little room") {
  view::SimulatedJobOptions options;
  options.job.model = "mlp:6-3";
  options.job.data = "synthetic:samples=1000";
  options.job.global_batch = 1000;
  options.job.steps = 2;
  options.job.algorithm = "star";
  options.network.link = {1e9, std::chrono::microseconds(10)};
  options.network.link_bytes = 1200;
  const auto run = [&](const char* strategy, std::size_t workers, std::size_t servers, const char* recovery) {
    options.job.strategy = strategy;
    options.job.workers = workers;
    options.job.servers = servers;
    options.job.recovery = recovery;
    options.network.peers = view::peers_of(options.job);
    return view::simulate(options, test::built_in_names().of_job());
  };
  const SimulatedRun ps = run("ps", 450, 50, "servers");
  const SimulatedRun ddp = run("ddp", 450, 0, "workers");
  for (const SimulatedRun* each : {&ps, &ddp}) {
    REQUIRE(each->workers.size() == 450);
    for (const SimulatedRun::Worker& worker : each->workers) {
      REQUIRE(worker.steps == std::vector<std::uint64_t>{0, 1});
      REQUIRE(worker.parameters == ddp.workers[0].parameters);
    }
  }
}
