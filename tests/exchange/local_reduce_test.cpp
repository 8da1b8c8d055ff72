// --local-reduce: one push a host, and the sum of all the same.
#include <algorithm>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;
using Hosts = std::vector<std::size_t>;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";

JobRun reference(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  job.servers = 0;
  job.optimizer_on = "server";
  return run_job(job);
}

/// Every worker pushes nothing but for its host, where all gradients are read by the first worker in shared memory.
void check_bytes(const JobRun& run, const Hosts& hosts, std::size_t servers, bool colocated, std::uint64_t pulls) {
  const std::uint64_t m = run.parameters * sizeof(float);
  const std::size_t n = run.workers.size();
  const auto away = [&](std::size_t rank) { return colocated && rank < servers ? m / servers * (servers - 1) : m; };
  std::uint64_t pushed = 0;
  std::uint64_t pulled = 0;
  for (std::size_t rank = 0; rank < n; ++rank) {
    CAPTURE(rank);
    const auto host = std::upper_bound(hosts.begin(), hosts.end(), rank) - 1;
    const std::size_t end = host + 1 == hosts.end() ? n : *(host + 1);
    const bool pushes = *host == rank;
    const test::WorkerRun& worker = run.workers[rank];
    CHECK(worker.sent == run.steps * (pushes ? away(rank) : m));
    CHECK(worker.received == run.steps * (pulls * away(rank) + (pushes ? (end - rank - 1) * m : 0)));
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
    if (pushes) pushed += away(rank);
    pulled += pulls * away(rank);
  }
  CHECK(run.servers_received == run.steps * pushed);
  CHECK(run.servers_sent == run.steps * pulled);
  CHECK(run.servers_received == run.steps * run.predicted.server_receives.value());
  CHECK(run.servers_sent == run.steps * run.predicted.server_sends.value());
  for (const auto& peaks : run.server_peaks) CHECK(peaks == run.predicted.server_memory);
}

struct Way {
  const char* strategy;
  const char* placement;
  std::uint64_t pulls;
};

}  // namespace

TEST_CASE("one push a host: the bits of single where the sum is in rank order, bytes by the formula") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto way = GENERATE(values<Way>({{"ps", "standalone", 1},
                                         {"ps-zero2", "standalone", 1},
                                         {"ps-zero3", "standalone", 2},
                                         {"ps-colocated", "colocated", 1},
                                         {"ps-zero3", "colocated", 2}}));
  JobOptions job = test::small_job(model, 7);
  job.local_reduce = true;
  job.strategy = way.strategy;
  job.placement = way.placement;
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("micro-batches or evaluation now and then") {
    if (way.pulls == 1 && std::string(way.strategy) != "ps-zero2") job.accumulate = 2;
    job.eval_every = 2;
  }
  SECTION("the optimizer on the worker") {
    if (std::string(way.strategy).find("zero") == std::string::npos) job.optimizer_on = "worker";
  }
  // The last two worlds have another sum: (g0 + g1) + (g2 + g3), and g0 + (g1 + g2).
  const std::vector<std::pair<std::size_t, Hosts>> worlds = {{1, {0}},       {2, {0}},       {3, {0}},    {4, {0}},
                                                             {4, {0, 2, 3}}, {3, {0, 1, 2}}, {4, {0, 2}}, {3, {0, 1}}};
  for (const auto& [workers, hosts] : worlds)
    for (const Links links : {Links::shm, Links::tcp}) {
      const std::size_t servers = links == Links::shm ? std::min<std::size_t>(2, workers) : 1;
      CAPTURE(model, way.strategy, way.placement, workers, hosts, servers, int(links));
      JobOptions mine = job;
      mine.workers = workers;
      mine.servers = servers;
      const JobRun run = run_job(mine, links, nullptr, hosts);
      const bool in_order = hosts != Hosts{0, 2} && !(workers == 3 && hosts == Hosts{0, 1});
      CHECK(run.predicted.same_bits == in_order);
      JobOptions plain = job;
      plain.local_reduce = false;
      plain.placement = "standalone";
      const JobRun expected = reference(plain, workers);
      CHECK((run.workers[0].model == expected.workers[0].model) == in_order);
      for (const test::WorkerRun& worker : run.workers) CHECK((worker.model == run.workers[0].model));
      check_bytes(run, hosts, servers, mine.placement == "colocated", way.pulls);
    }
}
