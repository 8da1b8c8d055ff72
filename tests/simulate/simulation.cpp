#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/parallel.h>
#include <psring/common/net/reliable.h>
#include <psring/ring/link_group.h>
#include <psring/server/server.h>
#include <psring/tests/simulate/simulation.h>
#include <psring/tests/support/job_shard.h>
#include <psring/worker/training.h>

namespace psring::test {
namespace {

using net::Peer;
using net::Role;

/// Longer than what is lost takes to arrive: of 40 times, once gets through.
constexpr Nanoseconds kLinger = std::chrono::seconds(20);

/// The names that jobs resolve; one for all of them.
struct Names {
  Names() {
    optim::register_builtin_optimizers(optimizers);
    worker::register_builtins(workers);
    server::register_builtin_aggregators(
        [&](const char* name, const char* help, auto make) { aggregators.add(name, help, make); });
  }
  optim::OptimizerRegistry optimizers;
  worker::Registries workers;
  Registry<server::Aggregator> aggregators;
};

class Steps final : public worker::TrainObserver {
 public:
  explicit Steps(std::vector<std::uint64_t>& steps) : steps_(steps) {}
  void on_step(const worker::StepReport& report) override { steps_.push_back(report.step); }
  void on_evaluation(const worker::Evaluation& /*evaluation*/) override {}

 private:
  std::vector<std::uint64_t>& steps_;
};

/// One run. The network lets one role at a time use it.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : setup_(scenario.job, names_.workers, names_.optimizers), network_(scenario.network) {
    run_.workers.resize(scenario.job.workers);
    run_.servers.resize(scenario.job.servers);
  }

  SimulatedRun run() {
    const std::size_t workers = setup_.job().workers;
    network_.run([&](std::size_t place) {
      try {
        if (place < workers)
          work(static_cast<std::uint32_t>(place));
        else
          serve(static_cast<std::uint32_t>(place - workers));
      } catch (...) {
        if (!failed_) failed_ = std::current_exception();
      }
    });
    if (failed_) std::rethrow_exception(failed_);
    run_.time = network_.clock().now() - Moment{};
    return std::move(run_);
  }

 private:
  /// What the roles of a job hear from the coordinator.
  void check() const {
    if (failed_) fail(ErrorKind::peer_lost, "another role of the job failed");
  }

  std::unique_ptr<net::ReliableTransport> join(Peer self, ByteLedger& ledger) {
    return net::make_reliable_transport(
        {std::shared_ptr<void>(), &network_.transport(self)},
        {.clock = &network_.clock(), .ledger = &ledger, .keeper = false, .linger = kLinger});
  }
  void leave(std::unique_ptr<net::ReliableTransport> transport, const ByteLedger& ledger) {
    transport.reset();
    run_.retransmitted += ledger.total(ByteLedger::Direction::sent, "retransmitted").messages;
  }

  void serve(std::uint32_t rank) {
    const JobShard made(setup_, names_.aggregators, rank);
    MemoryLedger memory;
    ByteLedger bytes;
    Parallel parallel(1);
    server::Shard shard(made.options, parallel, memory);
    auto transport = join({Role::server, rank}, bytes);
    server::serve(shard, *transport, network_.clock(), [this] {
      check();
      return done_ == setup_.job().workers;
    });
    SimulatedRun::Server& mine = run_.servers[rank];
    mine.version = shard.version();
    for (const server::StalenessRecord& of : shard.staleness()) mine.most_lag = std::max(mine.most_lag, of.most_lag);
    leave(std::move(transport), bytes);
  }

  void work(std::uint32_t rank) {
    SimulatedRun::Worker& mine = run_.workers[rank];
    MemoryLedger memory;
    ByteLedger bytes;
    Trace trace(network_.clock(), false);
    auto transport = join({Role::worker, rank}, bytes);
    {
      const auto group = setup_.strategy().ring ? make_group(*transport, rank) : nullptr;
      worker::Training training(setup_, {.rank = rank,
                                         .memory = memory,
                                         .clock = network_.clock(),
                                         .trace = trace,
                                         .arena = nullptr,
                                         .transport = group ? nullptr : transport.get(),
                                         .group = group.get(),
                                         .check = [this] { check(); }});
      Steps observer(mine.steps);
      training.run(observer);
      training.read([&](ConstElements values) {
        const auto tensor = values.as<float>();
        mine.parameters.insert(mine.parameters.end(), tensor.begin(), tensor.end());
      });
    }
    ++done_;
    leave(std::move(transport), bytes);
  }

  std::unique_ptr<ring::ProcessGroup> make_group(net::Transport& transport, std::uint32_t rank) {
    ring::LinkOptions options;
    options.group.check = [this] { check(); };
    options.tuning = ring::Tuning::built_in();
    if (setup_.job().algorithm != "auto")
      options.algorithm = ring::parse_algorithm("--algorithm", setup_.job().algorithm);
    options.segment_bytes = 512;  // so that a vector is several frames
    options.clock = &network_.clock();
    return ring::make_link_group(transport, rank, setup_.job().workers, std::move(options));
  }

  static inline const Names names_;
  worker::TrainSetup setup_;
  net::SimulatedNetwork network_;
  SimulatedRun run_;
  std::size_t done_ = 0;
  std::exception_ptr failed_;
};

/// The first thing that does not hold of a run; "" where all does.
std::string wrong(const JobOptions& job, const SimulatedRun& run, const SimulatedRun* quiet) {
  const Consistency consistency = parse_consistency(job.consistency, 0);
  for (std::size_t rank = 0; rank < run.workers.size(); ++rank) {
    const SimulatedRun::Worker& worker = run.workers[rank];
    for (std::uint64_t step = 0; step < std::max<std::size_t>(*job.steps, worker.steps.size()); ++step)
      if (worker.steps.size() != *job.steps || worker.steps[step] != step)
        return fmt::format("worker {} made {} steps, not 0 .. {} in order", rank, worker.steps.size(), *job.steps - 1);
    if (quiet != nullptr && worker.parameters != quiet->workers[rank].parameters)
      return fmt::format("worker {} ended with other parameters than over a good network", rank);
  }
  const std::uint64_t updates = *job.steps * (consistency.each_push_updates ? job.workers : 1);
  for (std::size_t rank = 0; rank < run.servers.size(); ++rank) {
    const SimulatedRun::Server& server = run.servers[rank];
    if (server.version != updates)
      return fmt::format("server {} made {} updates, expected {}", rank, server.version, updates);
    if (consistency.bound && server.most_lag > *consistency.bound)
      return fmt::format("server {} saw a lag of {} under {}", rank, server.most_lag, job.consistency);
  }
  return "";
}

}  // namespace

SimulatedRun simulate(const Scenario& scenario) { return Simulation(scenario).run(); }

const SimulatedRun& Examiner::quiet(const JobOptions& job) {
  const std::string key = to_json(job);
  const auto found = quiet_.find(key);
  if (found != quiet_.end()) return found->second;
  Scenario scenario = draw_scenario(0);
  scenario.job = job;
  scenario.network.trouble = {};
  scenario.network.peers.clear();
  for (std::uint32_t rank = 0; rank < job.workers; ++rank) scenario.network.peers.push_back({Role::worker, rank});
  for (std::uint32_t rank = 0; rank < job.servers; ++rank) scenario.network.peers.push_back({Role::server, rank});
  return quiet_[key] = simulate(scenario);
}

std::optional<std::string> Examiner::examine(std::uint64_t seed) {
  const Scenario scenario = draw_scenario(seed);
  std::string finding;
  try {
    const SimulatedRun run = simulate(scenario);
    retransmitted_ += run.retransmitted;
    const bool exact = scenario.job.consistency == "bsp";
    finding = wrong(scenario.job, run, exact ? &quiet(scenario.job) : nullptr);
  } catch (const std::exception& error) {
    finding = error.what();
  }
  if (finding.empty()) return std::nullopt;
  return fmt::format("seed {}: {} [{}]", seed, finding, to_string(scenario));
}

}  // namespace psring::test
