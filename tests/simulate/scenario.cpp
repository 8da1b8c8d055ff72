#include <array>
#include <random>
#include <string_view>

#include <fmt/format.h>

#include <psring/tests/simulate/simulation.h>

namespace psring::test {
namespace {

using namespace std::chrono_literals;

/// A strategy as a job's options have it.
struct Way {
  std::string_view name;
  std::string_view strategy;
  std::string_view consistency = "bsp";
  std::string_view optimizer_on = "server";
};

constexpr std::array<Way, 14> kWays = {{{"ps", "ps"},
                                        {"ps, optimizer on workers", "ps", "bsp", "worker"},
                                        {"ps-zero2", "ps-zero2"},
                                        {"ps-zero3", "ps-zero3"},
                                        {"ps, ssp:0", "ps", "ssp:0"},
                                        {"ps, ssp:2", "ps", "ssp:2"},
                                        {"ps, asp", "ps", "asp"},
                                        {"ps-zero2, ssp:1", "ps-zero2", "ssp:1"},
                                        {"ps-zero3, asp", "ps-zero3", "asp"},
                                        {"ddp", "ddp"},
                                        {"ddp-naive", "ddp-naive"},
                                        {"zero1", "zero1"},
                                        {"zero2", "zero2"},
                                        {"zero3", "zero3"}}};

/// Draws by the standard's generator, which is the same everywhere; its distributions are not.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  template <class List>
  const auto& of(const List& list) {
    return *(std::begin(list) + static_cast<std::ptrdiff_t>(below(std::size(list))));
  }

 private:
  std::mt19937_64 random_;
};

JobOptions draw_job(Draw& draw) {
  const Way& way = draw.of(kWays);
  const bool servers = way.strategy.starts_with("ps");
  const bool asynchronous = way.consistency != "bsp";
  const bool at_owner = way.strategy.starts_with("ps-zero");
  JobOptions job;
  job.strategy = way.strategy;
  job.consistency = way.consistency;
  job.optimizer_on = way.optimizer_on;
  job.model = "mlp:6-7-5-3";
  job.data = "synthetic:samples=24";
  job.workers = 1 + draw.below(4);
  job.servers = servers ? 1 + draw.below(3) : 0;
  job.optimizer = draw.of(std::array{"sgd", "momentum", "adam"});
  job.lr = 0.05;
  const bool clips = draw.below(2) == 0;
  const bool accumulates = draw.below(2) == 0;
  if (clips && !(asynchronous && at_owner)) job.clip_norm = 0.5;
  if (accumulates && !(asynchronous && at_owner)) job.accumulate = 2;
  job.global_batch = 2 * job.workers;
  job.steps = 3;
  job.seed = 7;
  job.overlap = false;  // a thread of the group's own would be one that the network does not know of
  if (!servers) job.algorithm = draw.of(std::array{"auto", "ring", "exchange", "halving-doubling"});
  return job;
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed) {
  Draw draw(seed);
  Scenario scenario;
  scenario.job = draw_job(draw);
  net::SimulatedNetwork::Options& network = scenario.network;
  network.seed = seed;
  network.link = {draw.of(std::array{1e7, 1e9}), draw.of(std::array{10us, 1000us})};
  const auto share = [&](double most) { return most * static_cast<double>(draw.below(5)) / 4; };
  network.trouble = {.drop = share(0.2),
                     .duplicate = share(0.2),
                     .corrupt = share(0.1),
                     .extra_delay = draw.of(std::array{0us, 100us, 5000us})};
  for (std::uint32_t rank = 0; rank < scenario.job.workers; ++rank) network.peers.push_back({net::Role::worker, rank});
  for (std::uint32_t rank = 0; rank < scenario.job.servers; ++rank) network.peers.push_back({net::Role::server, rank});
  network.limit = 10min;
  return scenario;
}

std::string to_string(const Scenario& scenario) {
  const JobOptions& job = scenario.job;
  const auto& trouble = scenario.network.trouble;
  return fmt::format(
      "--strategy {} --consistency {} --optimizer-on {} --workers {} --servers {} --optimizer {} --clip-norm {} "
      "--accumulate {} --algorithm {}; {}; dropped {}, doubled {}, changed {}, up to {} us late",
      job.strategy, job.consistency, job.optimizer_on, job.workers, job.servers, job.optimizer, job.clip_norm,
      job.accumulate, job.algorithm, net::to_string(scenario.network.link), trouble.drop, trouble.duplicate,
      trouble.corrupt, trouble.extra_delay.count() / 1000);
}

}  // namespace psring::test
