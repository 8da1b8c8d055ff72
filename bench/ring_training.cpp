#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fmt/core.h>

#include <psring/bench/peers/processes.h>
#include <psring/bench/report.h>
#include <psring/bench/ring_training.h>
#include <psring/bench/step_observer.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/net/host.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/shm/world.h>
#include <psring/worker/registries.h>
#include <psring/worker/servers/ps_client.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/training.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr const char* kExchangeOff = "exchange-off";

/// A worker of the benchmark, or the only worker of `single`.
class Worker {
 public:
  explicit Worker(const RingTrainingOptions& options) : options_(options) {
    worker::register_builtins(registries_);
    optim::register_builtin_optimizers(optimizers_);
    registries_.strategies.add(kExchangeOff, "", [](const Spec&) {
      // Each worker trains alone: the strategy's computation without its exchange.
      return std::make_unique<worker::StrategyKind>(worker::StrategyKind{.ring = true, .make = worker::make_single});
    });
    JobOptions job{.model = options.model, .global_batch = options.workers * options.worker_batch};
    // Few samples, because a run ends with an evaluation, which is not measured.
    job.data = fmt::format("synthetic:samples={}", 2 * std::max(job.global_batch, options.batch));
    job.workers = options.workers;
    job.steps = options.steps + options.warm_up;
    job.seed = 7;
    job.lr = 0.1;
    job.strategy = options.strategy;
    exchange_.emplace(job, registries_, optimizers_);
    if (!exchange_->strategy().ring)
      fail(ErrorKind::usage, "--strategy {}: its workers do not exchange by collectives", options.strategy);
    job.strategy = kExchangeOff;
    exchange_off_.emplace(job, registries_, optimizers_);
    job.strategy = "single";
    job.workers = 1;
    job.global_batch = options.batch;
    single_.emplace(job, registries_, optimizers_);
  }

  StepObserver run_single() { return run(*single_, nullptr); }
  StepObserver run_exchange(ring::ProcessGroup& group) { return run(*exchange_, &group); }
  StepObserver run_exchange_off(ring::ProcessGroup& group) { return run(*exchange_off_, &group); }
  std::size_t arena_bytes() const { return worker::lent_bytes(exchange_->layout()) + ring::kShmArenaBytes; }

 private:
  StepObserver run(const worker::TrainSetup& setup, ring::ProcessGroup* group) {
    StepObserver observer(options_.warm_up);
    MemoryLedger memory;
    Events events(clock_);
    worker::Training training(setup, {.rank = {group == nullptr ? 0 : group->rank()}},
                              {.memory = memory,
                               .clock = clock_,
                               .events = events,
                               .arena = group == nullptr ? nullptr : group->arena(),
                               .group = group});
    if (group != nullptr) group->barrier().wait();
    events.listen(observer, Events::Wanted::reports);
    training.run();
    return observer;
  }

  const RingTrainingOptions options_;
  const SystemClock clock_;
  worker::Registries registries_;
  optim::OptimizerRegistry optimizers_;
  std::optional<worker::TrainSetup> exchange_;
  std::optional<worker::TrainSetup> exchange_off_;
  std::optional<worker::TrainSetup> single_;
};

/// The other worker processes, and the group of all workers.
class Team {
 public:
  Team(const RingTrainingOptions& options, std::size_t arena_bytes) : cluster_(folder_.logs(), clock_) {
    const net::JobKey key = net::JobKey::load(folder_.key_file());
    links_.emplace(key, net::DataLinks::Options{.self = {worker(0), 0}, .way = net::Way::shm, .host_id = host_},
                   bytes_);
    const std::string address = links_->listen().at("ring-shm");
    for (std::size_t rank = 1; rank < options.workers; ++rank)
      cluster_.start(fmt::format("worker {}", rank),
                     own_command("train-rank", {{"--rank", std::to_string(rank)},
                                                {"--workers", std::to_string(options.workers)},
                                                {"--model", options.model},
                                                {"--strategy", options.strategy},
                                                {"--worker-batch", std::to_string(options.worker_batch)},
                                                {"--steps", std::to_string(options.steps)},
                                                {"--warm-up", std::to_string(options.warm_up)},
                                                {"--rounds", std::to_string(options.rounds)},
                                                {"--key", folder_.key_file()},
                                                {"--address", address}}));
    ring::LinkOptions link_options;
    link_options.group.check = [this] { check_processes(); };
    group_ = links_->connect(members(options.workers, address), std::make_shared<Arena>(arena_bytes),
                             std::move(link_options), clock_.now() + kPatience);
  }
  ~Team() { cluster_.terminate_all(std::chrono::seconds(1)); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  static net::Peer worker(std::size_t rank) { return {net::Role::worker, static_cast<std::uint32_t>(rank)}; }
  static std::vector<net::Member> members(std::size_t workers, const std::string& address) {
    std::vector<net::Member> all;
    for (std::size_t rank = 0; rank < workers; ++rank)
      all.push_back({.peer = worker(rank), .host_id = net::host_id(), .addresses = {{"ring-shm", address}}});
    return all;
  }
  ring::ProcessGroup& group() { return *group_; }

 private:
  void check_processes() {
    if (const auto exit = cluster_.next_exit(Moment::min()))
      throw Error(kind_of_status(exit->status), fmt::format("{}: {}", exit->name, message_of(*exit)));
  }

  const SystemClock clock_;
  const BenchFolder folder_;
  const std::string host_ = net::host_id();
  LocalCluster cluster_;
  ByteLedger bytes_;
  std::optional<ring::RingLinks> links_;
  std::unique_ptr<ring::ProcessGroup> group_;
};

/// Runs `rounds` rounds with all ranks, and calls `round` after each; rank 0 then trains alone.
template <class Round>
void take_turns(Worker& worker, ring::ProcessGroup& group, std::size_t rounds, Round round) {
  for (std::size_t i = 0; i < rounds; ++i) {
    const StepObserver together = worker.run_exchange(group);
    const StepObserver apart = worker.run_exchange_off(group);
    // The slowest rank determines the step's time.
    double steps[] = {together.steps.median(), apart.steps.median(), together.exposed.median()};
    group.all_reduce(std::span(steps), ring::ReduceOp::Kind::max).wait();
    round(steps[0], steps[1], steps[2]);
    group.barrier().wait();
  }
}

void print_row(const char* name, double samples, const Samples& step, double ratio, const char* to) {
  out::print("{:<14} {:>11.1f} us a step, spread {:>3.0f} %, {:>10.1f} samples/s, {:.3f} {}\n", name,
             1e6 * step.median(), 100 * step.spread(), samples / step.median(), ratio, to);
}

}  // namespace

void bench_ring_training(const RingTrainingOptions& options) {
  const std::string machine = describe_machine();
  Worker worker(options);
  Team team(options, worker.arena_bytes());
  out::print(
      "{}\n{}: {} workers of batch {}, their exchange off, and single of batch {}; {} rounds of {} steps in turn\n\n",
      machine, options.model, options.workers, options.worker_batch, options.batch, options.rounds, options.steps);
  std::fflush(stdout);
  Samples together;
  Samples apart;
  Samples alone;
  Samples exposed;
  take_turns(worker, team.group(), options.rounds, [&](double with, double without, double waited) {
    together.values.push_back(with);
    apart.values.push_back(without);
    exposed.values.push_back(waited);
    alone.values.push_back(worker.run_single().steps.median());
  });
  const auto samples = static_cast<double>(options.workers * options.worker_batch);
  const auto single_samples = static_cast<double>(options.batch);
  const double speed_up = alone.median_ratio(together) * samples / single_samples;
  print_row("single", single_samples, alone, 1, "of single");
  print_row("exchange off", samples, apart, alone.median_ratio(apart) * samples / single_samples, "of single");
  print_row(options.strategy.c_str(), samples, together, speed_up, "of single");
  out::print("{}: {:.3f} of the same processes with their exchange off; {:.1f} us of a step are waits (median)\n",
             options.strategy, apart.median_ratio(together), 1e6 * exposed.median());
  if (options.json.empty()) return;
  const Json report{{"machine", machine},
                    {"model", options.model},
                    {"workers", options.workers},
                    {"worker_batch", options.worker_batch},
                    {"single_batch", options.batch},
                    {"strategy", options.strategy},
                    {"step_s", together.values},
                    {"exchange_off_s", apart.values},
                    {"single_s", alone.values},
                    {"exposed_s", exposed.values},
                    {"of_single", speed_up},
                    {"of_exchange_off", apart.median_ratio(together)}};
  write_json_file(options.json, report.dump(1));
}

int run_training_rank(const TrainingRank& rank) {
  const RingTrainingOptions& options = rank.options;
  Worker worker(options);
  ByteLedger bytes;
  ring::RingLinks links(net::JobKey::load(rank.key_file),
                        {.self = {Team::worker(rank.rank), 0}, .way = net::Way::shm, .host_id = net::host_id()}, bytes);
  links.listen();
  const auto group = links.connect(Team::members(options.workers, rank.address),
                                   std::make_shared<Arena>(worker.arena_bytes()), {}, SystemClock().now() + kPatience);
  take_turns(worker, *group, options.rounds, [](double, double, double) {});
  return 0;
}

}  // namespace psring::bench
