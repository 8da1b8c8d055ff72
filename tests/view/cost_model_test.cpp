#include <algorithm>
#include <cmath>
#include <memory>
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

/// The strategies' real code, in virtual time: the mean over the steps after the first.
double simulated_step_s(JobOptions job, double server_bytes_per_s) {
  const auto time_of = [&](std::uint64_t steps) {
    view::SimulatedJobOptions options;
    options.job = job;
    options.job.steps = steps;
    options.network.link = net::parse_link(job.link);
    if (job.placement == "colocated") {
      const auto peers = view::peers_of(options.job);
      for (std::size_t place = 0; place < peers.size(); ++place)
        options.network.processes.push_back(peers[place].role == net::Role::server ? peers[place].rank : place);
    }
    options.server_bytes_per_second = server_bytes_per_s;
    return seconds(view::simulate(options, {names().workers, names().optimizers, names().aggregators}).time);
  };
  constexpr std::uint64_t kFirst = 3;
  constexpr std::uint64_t kMore = 4;
  return (time_of(kFirst + kMore) - time_of(kFirst)) / kMore;
}

double predicted_step_s(const JobOptions& job, double server_bytes_per_s) {
  const auto kind = names().workers.strategies.make(Spec::parse("--strategy", job.strategy));
  const std::size_t owners = kind->servers ? job.servers : kind->ring ? job.shard_owners().value_or(job.workers) : 1;
  const Workload work = make_workload(job, names().workers, owners, [](const LayerPass&) { return 0.0; });
  const net::LinkSpec link = net::parse_link(job.link);
  const Mesh mesh{.hosts = job.workers, .workers_per_host = 1, .within = link, .between = link};
  HostCosts costs;
  if (server_bytes_per_s > 0) costs.server_s_per_byte = 1 / server_bytes_per_s;
  return estimate_step(job, *kind, work, mesh, costs).step_s;
}

struct Way {
  std::string strategy;
  std::size_t servers;
  std::string shard_group = "";
};

TEST_CASE("closed forms agree with the strategies in virtual time") {
  std::vector<double> errors;
  for (const std::size_t n : {2, 4})
    for (const std::string link : {"100mbit,0.2ms", "1gbit,0.2ms"})
      for (const std::string compute : {"sleep:1ms", "sleep:20ms"})
        for (const Way& way :
             {Way{"ps", 1}, Way{"ps", 2}, Way{"ps", n}, Way{"ps-colocated", n}, Way{"ps-zero3", 2}, Way{"ddp", 0},
              Way{"zero1", 0}, Way{"zero2", 0}, Way{"zero3", 0}, Way{"zero3", 0, "2"}}) {
          JobOptions job;
          job.strategy = way.strategy;
          job.model = "mlp:256-256-256-10";
          job.data = "synthetic";
          job.workers = n;
          job.servers = way.servers;
          job.global_batch = n;
          job.shard_group = way.shard_group;
          job.link = link;
          job.compute = compute;
          if (way.strategy == "ps-colocated") job.placement = "colocated";
          const double real = simulated_step_s(job, 1e10);
          const double error = predicted_step_s(job, 1e10) / real - 1;
          INFO(fmt::format("{:+.1f} % of {:.3f} ms: {} n={} s={} group {} {} {}", 100 * error, 1e3 * real, way.strategy,
                           n, way.servers, way.shard_group, link, compute));
          // Pulls of ps-zero3 compete with pushes in an order that the closed form does not follow.
          CHECK(std::abs(error) <= (way.strategy == "ps-zero3" ? 0.20 : 0.10));
          errors.push_back(std::abs(error));
        }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] <= 0.01);
  CHECK(errors[errors.size() * 9 / 10] <= 0.06);
}

}  // namespace
}  // namespace psring::bench
