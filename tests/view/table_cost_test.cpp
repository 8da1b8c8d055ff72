#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include <psring/bench/predict/step_model.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/tests/support/job_names.h>
#include <psring/view/step/simulated_job.h>
#include <psring/worker/predict_job.h>

namespace psring::bench {
namespace {

using test::built_in_names;

/// A job with tables, in which every process has a host of its own, but for servers in workers' processes.
struct TableCase {
  const char* strategy = "ps";
  std::size_t workers = 2;
  std::size_t servers = 2;
  std::size_t lookahead = 0;
  const char* consistency = "bsp";
  std::size_t micro_batches = 1;
  const char* compress = "none";
  const char* model = "dlrm:dense=4,features=8,dim=32";
  bool colocated = false;
  double clip_norm = 0;
  std::size_t batch = 128;  ///< of each worker

  std::string text() const {
    return fmt::format("{} n={} s={} b={} lookahead={} rows {} m={} {} {}{}", strategy, workers, servers, batch,
                       lookahead, consistency, micro_batches, compress, colocated ? "colocated " : "", model);
  }
  JobOptions job() const {
    JobOptions job;
    job.strategy = strategy;
    job.model = model;
    job.data = "criteo-like:samples=16k";
    job.workers = workers;
    job.servers = servers;
    job.placement = colocated ? "colocated" : "standalone";
    job.accumulate = micro_batches;
    job.global_batch = batch * workers;
    job.table_lookahead = lookahead;
    job.table_consistency = consistency;
    job.table_compress = compress;
    job.transport = "tcp";
    job.clip_norm = clip_norm;
    job.steps = 7;
    return job;
  }
};

constexpr double kFlops = 2e9;

std::vector<RowTraffic> rows_of(const JobOptions& job) {
  worker::TrainSetup setup(job, built_in_names().workers, built_in_names().optimizers,
                           worker::TrainSetup::Samples::real);
  std::vector<std::size_t> hosts(job.workers);
  std::iota(hosts.begin(), hosts.end(), std::size_t{0});
  return worker::predict_workers(setup, hosts, std::array<std::size_t, 1>{0}).front().rows;
}

/// The strategies' real code, in virtual time: the mean over the steps after the third, and over seeds, which order the
/// events of one moment.
double simulated_step_s(const TableCase& at, const net::LinkSpec& link, double about_s) {
  constexpr std::uint64_t kFirst = 3;
  constexpr std::uint64_t kMore = 4;
  constexpr std::uint64_t kSeeds = 4;
  const auto time_of = [&](std::uint64_t steps, std::uint64_t seed) {
    view::SimulatedJobOptions options;
    options.job = at.job();
    options.job.steps = steps;
    options.network.seed = seed;
    options.network.windows = true;
    const std::size_t processes = view::peers_of(options.job).size();
    for (std::size_t process = 0; process < processes; ++process) {
      const bool guest = at.colocated && process >= at.workers;
      options.network.processes.push_back(guest ? process - at.workers : process);
    }
    options.network.hosts = options.network.processes;
    options.network.link = link;
    options.flops_per_second = kFlops;
    options.begins_within = from_seconds(about_s / 100);
    return seconds(view::simulate(options, built_in_names().of_job()).time);
  };
  double sum = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    sum += (time_of(kFirst + kMore, seed) - time_of(kFirst, seed)) / kMore;
  return sum / kSeeds;
}

StepEstimate predicted(const TableCase& at, const net::LinkSpec& link) {
  const JobOptions job = at.job();
  const auto kind = worker::make_strategy_kind(built_in_names().workers, "--strategy", job.strategy, job.model);
  const std::vector<Workload> stages = make_workloads(
      job, built_in_names().workers, kind->servers ? job.servers : job.workers,
      [](const LayerPass& pass) { return pass.flops / kFlops; }, rows_of(job));
  const Mesh mesh{.hosts = job.workers, .workers_per_host = 1, .within = link, .between = link, .in_order = true};
  return estimate_step(job, *kind, stages, mesh, {});
}

void check_errors(const std::vector<TableCase>& cases, double most) {
  for (const TableCase& at : cases)
    for (const char* text : {"20mbit,0.2ms", "1gbit,0.2ms"}) {
      const net::LinkSpec link = net::parse_link(text);
      const double step = predicted(at, link).step_s;
      const double simulated = simulated_step_s(at, link, step);
      INFO(fmt::format("{:+.1f} %: {:.2f} of {:.2f} ms, {}, {}", 100 * (step / simulated - 1), 1e3 * step,
                       1e3 * simulated, text, at.text()));
      CHECK(std::abs(step / simulated - 1) <= most);
    }
}

TEST_CASE("predicted steps of servers with rows agree with the strategies in virtual time") {
  check_errors({{},
                {.servers = 1},
                {.workers = 4},
                {.workers = 3, .servers = 3},
                {.micro_batches = 4},
                {.lookahead = 1},
                {.workers = 4, .lookahead = 1},
                {.compress = "int8"},
                {.consistency = "asp"},
                {.servers = 2, .colocated = true},
                {.workers = 4, .servers = 4, .colocated = true},
                {.batch = 1024},
                {.model = "fm:dense=4,features=8,dim=16"}},
               0.10);
}

TEST_CASE("predicted steps of collectives beside rows agree with the strategies in virtual time") {
  check_errors({{.strategy = "hybrid"},
                {.strategy = "hybrid", .servers = 1},
                {.strategy = "hybrid", .workers = 4},
                {.strategy = "hybrid", .workers = 4, .servers = 1},
                {.strategy = "hybrid", .workers = 3, .servers = 3},
                {.strategy = "hybrid", .lookahead = 1},
                {.strategy = "hybrid", .workers = 4, .lookahead = 1},
                {.strategy = "hybrid", .micro_batches = 4},
                {.strategy = "hybrid", .consistency = "asp"},
                {.strategy = "hybrid", .batch = 1024},
                {.strategy = "zero1"},
                {.strategy = "zero2"},
                {.strategy = "hybrid", .colocated = true},
                {.strategy = "hybrid", .workers = 4, .servers = 4, .colocated = true}},
               0.10);
}

TEST_CASE("a step with rows and clipped gradients is close to the strategies in virtual time") {
  check_errors({{.clip_norm = 1}}, 0.15);
}

// A worker of the model asks at most two steps ahead.
TEST_CASE(
    "predicted steps of rows that are asked for several steps ahead are close to the strategies in virtual time") {
  check_errors({{.lookahead = 3, .consistency = "asp"}, {.strategy = "hybrid", .lookahead = 3, .consistency = "asp"}},
               0.20);
}

}  // namespace
}  // namespace psring::bench
