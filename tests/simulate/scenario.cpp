#include <algorithm>
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
  std::string_view recovery = "checkpoint";  ///< as cli/options.cpp resolves it
};

constexpr std::array<Way, 14> kWays = {{{"ps", "ps", "bsp", "server", "servers"},
                                        {"ps-zero2", "ps-zero2", "bsp", "server", "servers"},
                                        {"ps-zero3", "ps-zero3", "bsp", "server", "servers"},
                                        {"ddp", "ddp", "bsp", "server", "workers"},
                                        {"ps, optimizer on workers", "ps", "bsp", "worker"},
                                        {"ps, ssp:0", "ps", "ssp:0", "server", "servers"},
                                        {"ps, ssp:2", "ps", "ssp:2", "server", "servers"},
                                        {"ps, asp", "ps", "asp", "server", "servers"},
                                        {"ps-zero2, ssp:1", "ps-zero2", "ssp:1", "server", "servers"},
                                        {"ps-zero3, asp", "ps-zero3", "asp", "server", "servers"},
                                        {"ddp-naive", "ddp-naive"},
                                        {"zero1", "zero1"},
                                        {"zero2", "zero2"},
                                        {"zero3", "zero3"}}};
/// The first of them go on with the bits that they would have had: what crashes are mostly for.
constexpr std::size_t kExact = 4;

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

/// A model with a table, whose rows are at servers.
void take_tables(Draw& draw, JobOptions& job, bool servers) {
  job.model = "dlrm:dense=2,features=3,dim=4,bottom=6-4,top=6-1";
  job.data = "criteo-like:samples=24";
  job.table_optimizer = draw.of(std::array{"sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl"});
  job.table_lr = 0.1;
  job.table_type = draw.of(std::array{"f32", "bf16"});
  // A bf16 gradient of 4 values takes no fewer bytes in int8.
  job.table_compress = job.table_type == "f32" ? draw.of(std::array{"none", "none", "int8"}) : "none";
  if (job.consistency == "bsp") job.table_lookahead = draw.below(2);
  if (!servers) job.servers = 1 + draw.below(3);
  if (job.strategy == "zero2") job.accumulate = 1;
}

JobOptions draw_job(Draw& draw, bool crashes) {
  const Way& way = crashes && draw.below(4) > 0 ? kWays[draw.below(kExact)] : draw.of(kWays);
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
  const bool tables = (way.strategy == "ps" && way.optimizer_on == "server") || way.strategy == "ddp" ||
                      way.strategy == "zero1" || way.strategy == "zero2";
  const bool with_tables = tables && !(crashes && asynchronous) && draw.below(3) == 0;
  if (with_tables) take_tables(draw, job, servers);
  job.steps = 3;
  job.seed = 7;
  job.overlap = false;  // a thread of the group's own would be one that the network does not know of
  if (crashes) {
    job.max_restarts = 100;
    job.recovery = with_tables && !servers ? (way.recovery == "workers" ? "both" : "checkpoint") : way.recovery;
    const bool followed = (servers || job.recovery == "both") && !asynchronous && way.optimizer_on == "server";
    const bool elastic = followed || way.recovery == "workers" || with_tables;
    if (elastic && job.workers > 1 && draw.below(with_tables ? 2 : 4) == 0) {
      job.min_workers = 1;
      job.max_restarts = draw.below(2);
      job.replicas = followed ? draw.below(2) : 0;
    } else {
      job.replicas = followed && draw.below(4) > 0 ? 1 : 0;
    }
  }
  if (!servers) job.algorithm = draw.of(std::array{"auto", "ring", "exchange", "halving-doubling"});
  return job;
}

/// Draws crashes of any processes but the coordinator's, at any moment of most jobs' lives. Jobs with followers lose
/// mostly servers; elastic jobs lose workers, but keep one.
std::vector<net::SimulatedNetwork::Death> draw_crashes(Draw& draw, const JobOptions& job) {
  const bool elastic = job.min_workers > 0;
  const std::size_t places = elastic ? job.workers : job.workers + job.servers * (1 + job.replicas);
  std::vector<net::SimulatedNetwork::Death> crashes(1 + draw.below(elastic ? job.workers - 1 : 3));
  for (auto& crash : crashes) {
    const bool server = draw.below(2) == 0 && job.replicas > 0 && !elastic;
    crash.place = server ? job.workers + draw.below(job.servers) : draw.below(places);
    crash.at = Nanoseconds(1'000 + draw.below(draw.of(std::array{2'000'000, 20'000'000, 200'000'000, 1'000'000'000})));
    crash.returns_after = draw.of(std::array{1ms, 30ms, 1000ms});
  }
  return crashes;
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed) {
  Draw draw(seed);
  Scenario scenario;
  const bool crashes = draw.below(2) == 0;
  scenario.job = draw_job(draw, crashes);
  net::SimulatedNetwork::Options& network = scenario.network;
  network.seed = seed;
  network.link = {draw.of(std::array{1e7, 1e9}), draw.of(std::array{10us, 1000us})};
  const auto share = [&](double most) { return most * static_cast<double>(draw.below(5)) / 4; };
  network.trouble = {.drop = share(0.2),
                     .duplicate = share(0.2),
                     .corrupt = share(0.1),
                     .extra_delay = draw.of(std::array{0us, 100us, 5000us})};
  network.peers = view::peers_of(scenario.job);
  if (crashes) network.deaths = draw_crashes(draw, scenario.job);
  scenario.delays = {.message = draw.of(std::array{50us, 1000us}), .notice = draw.of(std::array{2000us, 100'000us})};
  network.limit = 10min;
  // From less than a frame to a few, while units and steps have several.
  network.link_bytes = draw.of(std::array{0, 600, 1200, 2400, 4800});
  return scenario;
}

std::string to_string(const Scenario& scenario) {
  const JobOptions& job = scenario.job;
  const auto& trouble = scenario.network.trouble;
  std::string text = fmt::format(
      "--strategy {} --consistency {} --optimizer-on {} --workers {} ({}) --servers {} --replicas {} --optimizer {} "
      "--clip-norm {} --accumulate {} --algorithm {} --model {} --table-optimizer {} --table-type {} --table-compress "
      "{} "
      "--table-lookahead {}; {}, {} bytes in a link; dropped {}, doubled {}, changed {}, up to {} us late",
      job.strategy, job.consistency, job.optimizer_on, job.workers, job.min_workers, job.servers, job.replicas,
      job.optimizer, job.clip_norm, job.accumulate, job.algorithm, job.model, job.table_optimizer, job.table_type,
      job.table_compress, job.table_lookahead, net::to_string(scenario.network.link), scenario.network.link_bytes,
      trouble.drop, trouble.duplicate, trouble.corrupt, trouble.extra_delay.count() / 1000);
  for (const net::SimulatedNetwork::Death& crash : scenario.network.deaths)
    text +=
        fmt::format("; {} crashes at {:.6f} s", net::to_string(scenario.network.peers[crash.place]), seconds(crash.at));
  return text;
}

}  // namespace psring::test
