#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
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

namespace psring::bench {
namespace {

using test::built_in_names;

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

double predicted_step_s(const Case& at, double bytes_per_s) {
  const auto kind = built_in_names().workers.strategies.make(Spec::parse("--strategy", at.job.strategy));
  const std::size_t owners = kind->servers ? at.job.servers
                             : kind->ring  ? at.job.shard_owners().value_or(at.job.workers)
                                           : 1;
  const std::vector<Workload> work =
      make_workloads(at.job, built_in_names().workers, owners, [](const LayerPass&) { return 0.0; });
  HostCosts costs;
  costs.aggregate_s_per_byte = kind->servers ? 1 / bytes_per_s : 0;
  if (kind->servers && at.job.optimizer_on == "server") costs.update_s_per_byte = 1 / bytes_per_s;
  return estimate_step(at.job, *kind, work, at.mesh, costs).step_s;
}

/// The strategies' real code, in virtual time: the mean over the steps after the first. `seed` orders the events of one
/// moment. Workers with servers begin within 1 % of `about_s`, the time of a step, as those of the model do: exactly
/// equal beginnings, which no real job has, keep some jobs in step for ever.
double simulated_step_s(const Case& at, double bytes_per_s, double about_s, std::uint64_t seed) {
  const auto time_of = [&](std::uint64_t steps) {
    view::SimulatedJobOptions options;
    options.job = at.job;
    options.job.steps = steps;
    options.network.seed = seed;
    options.network.windows = true;
    place(at, options.network);
    options.server_bytes_per_second = bytes_per_s;
    if (at.job.servers > 0) options.begins_within = from_seconds(about_s / 100);
    return seconds(view::simulate(options, built_in_names().of_job()).time);
  };
  constexpr std::uint64_t kFirst = 3;
  constexpr std::uint64_t kMore = 4;
  return (time_of(kFirst + kMore) - time_of(kFirst)) / kMore;
}

/// Chance orders frames that are ready at the same moment at a server, or at the card of their host. The time of a step
/// is therefore a mean over 4 to 50 seeds, until its standard error is at most 1 %. Jobs of more than 16 workers take
/// too long for that, and use one seed.
double simulated_step_s(const Case& at, double bytes_per_s, double about_s) {
  constexpr std::size_t kMostSeeds = 50;
  const bool by_chance = at.job.servers > 0 || at.mesh.workers_per_host > 1;
  if (!by_chance || at.job.workers > 16) return simulated_step_s(at, bytes_per_s, about_s, 0);
  std::vector<double> times;
  const auto mean = [&] {
    return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  };
  const auto is_sure = [&] {
    const double centre = mean();
    double squares = 0;
    for (const double time : times) squares += (time - centre) * (time - centre);
    const auto count = static_cast<double>(times.size());
    return std::sqrt(squares / (count - 1) / count) <= 0.01 * centre;
  };
  while (times.size() < 4 || (times.size() < kMostSeeds && !is_sure()))
    times.push_back(simulated_step_s(at, bytes_per_s, about_s, times.size()));
  return mean();
}

struct Way {
  std::string strategy;
  std::size_t servers = 0;
  std::string shard_group = "";
  std::string placement = "standalone";

  std::string name() const {
    return strategy + (servers > 0 ? fmt::format(" s={}", servers) : "") + (placement == "mixed" ? " mixed" : "") +
           (shard_group.empty() ? "" : " group=" + shard_group);
  }
};

/// The network and the work of a job.
struct Setting {
  std::string model;
  std::string link;
  std::string compute;
};

Case make_case(const Way& way, std::size_t hosts, std::size_t per_host, const Setting& setting) {
  Case at;
  at.job.strategy = way.strategy;
  at.job.model = setting.model;
  at.job.workers = hosts * per_host;
  // A batch for each step of simulated_step_s, and more: layers that sleep read no values, and to make them takes
  // longer than all the rest.
  at.job.data = fmt::format("synthetic:samples={}", 16 * at.job.workers);
  at.job.servers = way.servers;
  at.job.global_batch = at.job.workers;
  at.job.shard_group = way.shard_group;
  at.job.compute = setting.compute;
  at.job.placement = way.strategy == "ps-colocated" ? "colocated" : way.placement;
  at.mesh = {.hosts = hosts,
             .workers_per_host = per_host,
             .within = {1e10, std::chrono::microseconds(20)},
             .between = net::parse_link(setting.link),
             .in_order = true};
  return at;
}

/// The predicted time of a step, and that of the strategies' own code.
struct Times {
  double predicted_s = 0;
  double simulated_s = 0;
  double error() const { return predicted_s / simulated_s - 1; }
};

Times times_of(const Case& at) {
  constexpr double kServer = 1e10;
  const double predicted = predicted_step_s(at, kServer);
  return {predicted, simulated_step_s(at, kServer, predicted)};
}

constexpr const char* kMlp = "mlp:256-256-256-10";
constexpr const char* kGpt = "gpt:layers=2,dim=64,heads=2,context=32,vocab=64";

const std::vector<std::string> kLinks{"100mbit,0.2ms", "1gbit,0.2ms"};

/// Checks all ways, with links and computing times that hide much of the communication, or nothing.
void check_errors(const std::vector<Way>& ways, std::size_t hosts, std::size_t per_host,
                  const std::vector<std::string>& links = kLinks, double most = 0.05) {
  for (const std::string& link : links)
    for (const std::string compute : {"sleep:2ms", "sleep:20ms"})
      for (const Way& way : ways) {
        const double error = times_of(make_case(way, hosts, per_host, {kMlp, link, compute})).error();
        INFO(fmt::format("{:+.1f} %: {} {}x{} {} {}", 100 * error, way.name(), hosts, per_host, link, compute));
        CHECK(std::abs(error) <= most);
      }
}

TEST_CASE("predictions agree with the strategies in virtual time") {
  for (const std::size_t n : {2, 4})
    check_errors({{"ps", 1},
                  {"ps-colocated", n},
                  {"ps-zero2", 2},
                  {"ddp-naive"},
                  {"ddp"},
                  {"zero1"},
                  {"zero2"},
                  {"zero3"},
                  {"zero3", 0, "2"}},
                 n, 1);
  check_errors({{"ps", 2}, {"ps", 4}, {"ps-zero3", 2}}, 4, 1);
  // Two workers wait for each other's pushes in a rhythm that the model does not find: it is up to 9.5 % too quick.
  check_errors({{"ps-zero3", 2}}, 2, 1, kLinks, 0.1);
  check_errors({{"ps", 2}}, 2, 1);
}

// The workers of a host are not in step: while one of them has the card, another one uses the links within the host.
TEST_CASE("predictions agree on hosts with several workers") {
  check_errors({{"ps", 1},
                {"ps", 2},
                {"ps-zero3", 2},
                {"ddp-naive"},
                {"ddp"},
                {"zero1"},
                {"zero2"},
                {"zero3"},
                {"zero3", 0, "2"}},
               2, 2);
  // The cards are no faster than the links within a host, so that the stages within a host count most.
  check_errors({{"zero1"}}, 2, 2, {"10gbit,20us"}, 0.01);
  check_errors({{"ddp"}, {"zero2"}, {"zero3"}, {"zero3", 0, "8"}}, 4, 4, {"1gbit,0.2ms"});
}

TEST_CASE("predictions agree with more workers") {
  check_errors({{"ps", 2}, {"ps", 8}, {"ps-colocated", 8}, {"ddp"}, {"zero2"}, {"zero3"}}, 8, 1);
  check_errors({{"ddp"}, {"zero3"}}, 32, 1);
}

TEST_CASE("predictions agree with mixed servers in virtual time") {
  for (const std::size_t n : {2, 4})
    check_errors({{"ps", n + 1, "", "mixed"}, {"ps", 2 * n - 1, "", "mixed"}, {"ps-zero3", n + 1, "", "mixed"}}, n, 1);
}

// Four workers with a card of 100 Mbit/s each. A step ends with the answers to its last piece, and a standalone
// server's card waits until the first one has come from every worker: 2 n pieces beside the bytes of the busiest card.
TEST_CASE("mixed servers are faster than both ends in virtual time") {
  constexpr double kBytesPerS = 100e6 / 8;
  constexpr double kCompute = 0.02;
  const auto step = [&](const Way& way) {
    Case at = make_case(way, 4, 1, {"mlp:784-1024-1024-10", "100mbit", "sleep:20ms"});
    at.job.link = "100mbit";  // pieces of 64 KiB
    const Times times = times_of(at);
    INFO(way.name() << ": " << times.predicted_s << " predicted, " << times.simulated_s);
    CHECK(std::abs(times.error()) <= 0.05);
    return times.simulated_s;
  };
  const double colocated = step({"ps-colocated", 4});
  const double bytes = 4 * (784 * 1024 + 1024 * 1024 + 1024 * 10 + 2 * 1024 + 10);
  for (const std::size_t k : {1, 2}) {
    const double mixed = step({"ps", 4 + k, "", "mixed"});
    const double card = 24.0 / (16 + 4.0 * static_cast<double>(k) - 2.0 * static_cast<double>(k)) * bytes / kBytesPerS;
    INFO("k = " << k << ": " << mixed << ", card alone " << card);
    CHECK(mixed < colocated);
    CHECK(mixed < step({"ps", k}));
    CHECK(mixed > card);
    CHECK(mixed < card + kCompute + 8 * 65'536 / kBytesPerS);
  }
}

/// Prints the table of docs/results/virtual-time.md, of which the tests above check a part: up to five minutes for each
/// size. Columns: strategy, workers, hosts, milliseconds of a step predicted and simulated, difference, setting.
void print_errors(std::size_t hosts, std::size_t per_host) {
  const std::size_t n = hosts * per_host;
  std::vector<Way> ways{{"ps", 1},       {"ps", 2},       {"ps", n},       {"ps-colocated", n},
                        {"ps-zero2", 2}, {"ps-zero3", 1}, {"ps-zero3", n}, {"ddp-naive"},
                        {"ddp"},         {"zero1"},       {"zero2"},       {"zero3"}};
  if (per_host == 1) ways.insert(ways.end(), {{"ps", n + 1, "", "mixed"}, {"ps-zero3", n + 1, "", "mixed"}});
  if (n > 2) ways.push_back({"zero3", 0, "2"});
  if (n > 8) ways.push_back({"zero3", 0, "8"});
  std::vector<std::string> links{"1gbit,0.2ms"};
  if (n <= 16) links.insert(links.end(), {"100mbit,1ms", "10gbit,20us"});
  for (const Way& way : ways)
    for (const std::string model : {kMlp, kGpt})
      for (const std::string& link : links)
        for (const std::string compute : {"sleep:2ms", "sleep:20ms"}) {
          const Times times = times_of(make_case(way, hosts, per_host, {model, link, compute}));
          fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:+.1f} % | {} {} {} |\n", way.name(), n, hosts,
                     1e3 * times.predicted_s, 1e3 * times.simulated_s, 100 * times.error(), model, link, compute);
          std::fflush(stdout);
        }
}

TEST_CASE("errors of 2 workers", "[.table]") { print_errors(2, 1); }
TEST_CASE("errors of 4 workers", "[.table]") { print_errors(4, 1); }
TEST_CASE("errors of 8 workers", "[.table]") { print_errors(8, 1); }
TEST_CASE("errors of 16 workers", "[.table]") { print_errors(16, 1); }
TEST_CASE("errors of 32 workers", "[.table]") { print_errors(32, 1); }
TEST_CASE("errors of 64 workers", "[.table]") { print_errors(64, 1); }
TEST_CASE("errors of 2 hosts of 2 workers", "[.table]") { print_errors(2, 2); }
TEST_CASE("errors of 4 hosts of 4 workers", "[.table]") { print_errors(4, 4); }
TEST_CASE("errors of 8 hosts of 8 workers", "[.table]") { print_errors(8, 8); }

}  // namespace
}  // namespace psring::bench
