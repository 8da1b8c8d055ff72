#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include <psring/bench/cost/step_model.h>
#include <psring/common/base/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/view/step/simulated_job.h>

namespace psring::bench {
namespace {

struct Names {
  Names() {
    worker::register_builtins(workers);
    optim::register_builtin_optimizers(optimizers);
    server::register_builtin_aggregators(
        [&](const char* name, const char* help, auto make) { aggregators.add(name, help, make); });
  }
  worker::Registries workers;
  optim::OptimizerRegistry optimizers;
  Registry<server::Aggregator> aggregators;
};

const Names& names() {
  static const Names all;
  return all;
}

/// A job on a mesh of hosts.
struct Case {
  JobOptions job;
  Mesh mesh;
};

/// The places of a job's processes: workers fill one host after the other, servers have hosts of their own, or are in
/// the processes of workers.
void place(const Case& at, net::SimulatedNetwork::Options& network) {
  const auto peers = view::peers_of(at.job);
  std::vector<std::size_t> processes(peers.size());
  std::iota(processes.begin(), processes.end(), std::size_t{0});
  for (std::size_t worker = 0; worker < at.job.workers; ++worker)
    if (const auto server = at.job.server_in(worker)) processes[at.job.workers + *server] = worker;
  for (const std::size_t process : processes) {
    network.processes.push_back(process);
    network.hosts.push_back(process < at.job.workers ? process / at.mesh.workers_per_host : at.job.workers + process);
  }
  network.link = at.mesh.between;
  network.within = at.mesh.within;
}

/// The strategies' real code, in virtual time: the mean over the steps after the first.
double simulated_step_s(const Case& at, double bytes_per_s) {
  const auto time_of = [&](std::uint64_t steps) {
    view::SimulatedJobOptions options;
    options.job = at.job;
    options.job.steps = steps;
    place(at, options.network);
    options.server_bytes_per_second = bytes_per_s;
    return seconds(view::simulate(options, {names().workers, names().optimizers, names().aggregators}).time);
  };
  constexpr std::uint64_t kFirst = 3;
  constexpr std::uint64_t kMore = 4;
  return (time_of(kFirst + kMore) - time_of(kFirst)) / kMore;
}

double predicted_step_s(const Case& at, double bytes_per_s) {
  const auto kind = names().workers.strategies.make(Spec::parse("--strategy", at.job.strategy));
  const std::size_t owners = kind->servers ? at.job.servers
                             : kind->ring  ? at.job.shard_owners().value_or(at.job.workers)
                                           : 1;
  const Workload work = make_workload(at.job, names().workers, owners, [](const LayerPass&) { return 0.0; });
  HostCosts costs;
  costs.aggregate_s_per_byte = kind->servers ? 1 / bytes_per_s : 0;
  if (kind->servers && at.job.optimizer_on == "server") costs.update_s_per_byte = 1 / bytes_per_s;
  return estimate_step(at.job, *kind, work, at.mesh, costs).step_s;
}

struct Way {
  std::string strategy;
  std::size_t servers;
  std::string shard_group = "";
  std::string placement = "standalone";
};

Case make_case(const Way& way, std::size_t hosts, std::size_t per_host, const std::string& link,
               const std::string& compute) {
  Case at;
  at.job.strategy = way.strategy;
  at.job.model = "mlp:256-256-256-10";
  at.job.data = "synthetic";
  at.job.workers = hosts * per_host;
  at.job.servers = way.servers;
  at.job.global_batch = at.job.workers;
  at.job.shard_group = way.shard_group;
  at.job.compute = compute;
  at.job.placement = way.strategy == "ps-colocated" ? "colocated" : way.placement;
  at.mesh = {.hosts = hosts,
             .workers_per_host = per_host,
             .within = {1e10, std::chrono::microseconds(20)},
             .between = net::parse_link(link)};
  return at;
}

/// The errors of closed forms over all ways, links and computing times, at most `most`, and `most_served` with servers:
/// the frames of equal units from several workers come at the same moments, and chance orders them, so that an exchange
/// with servers varies by a frame or two from seed to seed.
std::vector<double> errors_of(const std::vector<Way>& ways, std::size_t hosts, std::size_t per_host, double most,
                              double most_served = 0.10) {
  constexpr double kServer = 1e10;
  std::vector<double> errors;
  for (const std::string link : {"100mbit,0.2ms", "1gbit,0.2ms"})
    for (const std::string compute : {"sleep:1ms", "sleep:20ms"})
      for (const Way& way : ways) {
        const Case at = make_case(way, hosts, per_host, link, compute);
        const double real = simulated_step_s(at, kServer);
        const double error = predicted_step_s(at, kServer) / real - 1;
        const std::string text =
            fmt::format("{:+.1f} % of {:.3f} ms: {} hosts={}x{} s={} group {} {} {}", 100 * error, 1e3 * real,
                        way.strategy, hosts, per_host, way.servers, way.shard_group, link, compute);
        INFO(text);
        CHECK(std::abs(error) <= (way.servers > 0 ? most_served : most));
        errors.push_back(std::abs(error));
      }
  std::sort(errors.begin(), errors.end());
  return errors;
}

TEST_CASE("closed forms agree with the strategies in virtual time") {
  for (const std::size_t n : {2, 4}) {
    const std::vector<double> errors =
        errors_of({Way{"ps", 1}, Way{"ps", 2}, Way{"ps", n}, Way{"ps-colocated", n}, Way{"ps-zero3", 2}, Way{"ddp", 0},
                   Way{"zero1", 0}, Way{"zero2", 0}, Way{"zero3", 0}, Way{"zero3", 0, "2"}},
                  n, 1, 0.05);
    CHECK(errors[errors.size() / 2] <= 0.03);
  }
}

// A stage of a hierarchical collective begins when the worker calls the group again, which the closed forms do not
// know.
TEST_CASE("closed forms agree on hosts with several workers") {
  errors_of({Way{"ps", 1}, Way{"ps", 2}, Way{"ps-zero3", 2}, Way{"ddp", 0}, Way{"zero1", 0}, Way{"zero2", 0},
             Way{"zero3", 0}, Way{"zero3", 0, "2"}},
            2, 2, 0.09);
}

TEST_CASE("closed forms agree with more workers") {
  errors_of({Way{"ps", 2}, Way{"ps-colocated", 8}, Way{"ddp", 0}, Way{"zero2", 0}, Way{"zero3", 0}}, 8, 1, 0.05);
  errors_of({Way{"ddp", 0}, Way{"zero3", 0}}, 32, 1, 0.05);
}

/// The closed form lets pushes leave evenly over a step; the end of a real step depends on the order of single pieces.
TEST_CASE("closed forms agree with mixed servers in virtual time") {
  for (const std::size_t n : {2, 4}) {
    errors_of({Way{"ps", n + 1, "", "mixed"}, Way{"ps", 2 * n - 1, "", "mixed"}}, n, 1, 0, 0.10);
    errors_of({Way{"ps-zero3", n + 1, "", "mixed"}}, n, 1, 0, 0.20);
  }
}

}  // namespace
}  // namespace psring::bench
