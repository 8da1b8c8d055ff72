#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <signal.h>

#include <psring/common/base/error.h>
#include <psring/common/base/parallel.h>
#include <psring/common/net/sim/reliable.h>
#include <psring/common/proc/role.h>
#include <psring/ring/link/group.h>
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

class Steps final : public ReportListener {
 public:
  explicit Steps(std::vector<std::uint64_t>& steps) : steps_(steps) {}
  void on_step(const StepReport& report) override { steps_.push_back(report.step); }
  void on_evaluation(const Evaluation& /*evaluation*/) override {}

 private:
  std::vector<std::uint64_t>& steps_;
};

/// A role's links in an epoch of the membership. Peers are known by their duties there; on the network, by their
/// places.
class EpochLinks final : public net::Transport {
 public:
  EpochLinks(net::SimulatedNetwork& network, std::size_t place, const std::vector<Peer>& places,
             const std::vector<net::Member>& members)
      : network_(network), place_(place), inner_(network.transport(place)) {
    for (const net::Member& member : members) {
      const std::size_t at = std::stoul(member.addresses.at("place"));
      places_[member.peer] = places[at];
      duties_[places[at]] = member.peer;
      processes_[at] = member.pid;
    }
    while (!is_new()) {
    }
  }

  void send(Peer to, net::FrameHeader header, std::span<const std::byte> payload) override {
    inner_.send(places_.at(to), header, payload);
  }
  std::optional<net::Message> receive(Moment deadline) override {
    for (;;) {
      std::optional<net::Message> message = receive_of_members(deadline);
      if (!message) return message;
      const auto duty = duties_.find(message->header.sender());
      if (duty == duties_.end()) continue;  // of one without whom the job has gone on
      message->header.sender_role = duty->second.role;
      message->header.sender_rank = duty->second.rank;
      return message;
    }
  }
  std::size_t in_flight_bytes(Peer peer) const override { return inner_.in_flight_bytes(places_.at(peer)); }
  std::string describe(Peer peer) const override { return inner_.describe(places_.at(peer)); }
  void wake() override { inner_.wake(); }

 private:
  /// Links are new: what came over those before, their ends, too, is nothing to them.
  bool is_new() {
    try {
      return !inner_.receive(Moment::min());
    } catch (const Error& error) {
      if (network_.dead(place_)) throw Died();
      if (error.kind() != ErrorKind::peer_lost) throw;
      return false;
    }
  }

  /// The network tells everybody of every end, also of those without whom the job has gone on.
  std::optional<net::Message> receive_of_members(Moment deadline) {
    for (;;) {
      try {
        return inner_.receive(deadline);
      } catch (const Error& error) {
        const bool all_live = std::all_of(processes_.begin(), processes_.end(), [&](const auto& process) {
          return !network_.dead(process.first) && network_.incarnation(process.first) + 1 == process.second;
        });
        if (error.kind() != ErrorKind::peer_lost || !all_live) throw;
      }
    }
  }

  net::SimulatedNetwork& network_;
  const std::size_t place_;
  net::Transport& inner_;
  std::map<Peer, Peer> places_;                     ///< by duty
  std::map<Peer, Peer> duties_;                     ///< by place
  std::map<std::size_t, std::uint32_t> processes_;  ///< their numbers, by place
};

/// One run. The network lets one role at a time use it.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario),
        setup_(scenario.job, names_.workers, names_.optimizers),
        places_(scenario.network.peers),
        network_(scenario.network),
        control_(network_, places_, places_.size() - 1, scenario.job, scenario.delays) {
    run_.workers.resize(scenario.job.workers);
    run_.servers.resize(scenario.job.servers * (1 + scenario.job.replicas));
  }

  SimulatedRun run() {
    network_.run([&](std::size_t place) {
      try {
        place + 1 < places_.size() ? live(place) : control_.run();
      } catch (...) {
        if (!failed_) failed_ = std::current_exception();
      }
    });
    if (control_.result().failure) throw Error(*control_.result().failure);
    if (failed_) std::rethrow_exception(failed_);
    run_.begun_anew = control_.begun_anew();
    run_.time = network_.clock().now() - Moment{};
    return std::move(run_);
  }

 private:
  class ServerLife;
  class WorkerLife;

  /// One of a place's processes.
  void live(std::size_t place) {
    try {
      if (!control_.await_start(place)) return;
      places_[place].role == Role::worker ? live_as<WorkerLife>(place) : live_as<ServerLife>(place);
    } catch (const Died&) {
      if (control_.exited(place, 0, SIGKILL)) ++run_.crashes;
    }
  }

  /// As run_role (common/proc/role.h).
  template <class Life>
  void live_as(std::size_t place) {
    Control::Link link(control_, place);
    try {
      Life life(*this, link, place);
      while (!outlived(place, link, life)) {
      }
    } catch (const std::exception& exception) {
      if (network_.dead(place)) throw Died();
      link.fail(to_error(exception));
      control_.exited(place, exit_status(to_error(exception).kind()), 0);
      throw;
    }
    control_.exited(place, 0, 0);
  }
  template <class Life>
  bool outlived(std::size_t place, Control::Link& link, Life& life) {
    try {
      life.live_epoch();
      return true;
    } catch (const Error& error) {
      if (network_.dead(place)) throw Died();
      if (!setup_.job().goes_on() || error.kind() != ErrorKind::peer_lost) throw;
      link.regroup(error);
      return false;
    }
  }

  /// A role's links in one epoch, and what it counts there.
  class Links {
   public:
    /// `stays`: until the job has ended, so that nobody waits for what it sent.
    Links(Simulation& job, std::size_t place, Control::Link& link, const std::vector<net::Member>& members, bool stays)
        : run_(job.run_), link_(link), inner_(job.network_, place, job.places_, members) {
      transport_ = net::make_reliable_transport({std::shared_ptr<void>(), &inner_},
                                                {.link = {.incarnation = link.epoch()},
                                                 .clock = &job.network_.clock(),
                                                 .ledger = &bytes_,
                                                 .keeper = false,
                                                 .linger = stays ? Nanoseconds(0) : kLinger});
      for (const net::Member& member : members)
        if (member.peer != link.self()) transport_->meet(member.peer, link.epoch());
      link_.wakes(transport_.get());
    }
    ~Links() {
      link_.wakes(nullptr);
      transport_.reset();
      run_.retransmitted += bytes_.total(ByteLedger::Direction::sent, "retransmitted").messages;
    }
    Links(const Links&) = delete;
    Links& operator=(const Links&) = delete;

    net::ReliableTransport& transport() { return *transport_; }

   private:
    SimulatedRun& run_;
    Control::Link& link_;
    EpochLinks inner_;
    ByteLedger bytes_;
    std::unique_ptr<net::ReliableTransport> transport_;
  };

  static inline const Names names_;
  const Scenario& scenario_;
  worker::TrainSetup setup_;
  const std::vector<Peer>& places_;
  net::SimulatedNetwork network_;
  Control control_;
  SimulatedRun run_;
  std::exception_ptr failed_;
};

/// As server/role.cpp has it.
class Simulation::ServerLife {
 public:
  ServerLife(Simulation& job, Control::Link& link, std::size_t place)
      : job_(job),
        options_(job.setup_.job()),
        link_(link),
        place_(place),
        made_(job.setup_, names_.aggregators, link.rank()),
        buggy_(make_buggy(job.scenario_.bug, options_, options_.workers * job.setup_.layout().pushes)) {}

  void live_epoch() {
    if (options_.recovery != "servers") shard_.reset();
    const bool has_state = whole_ && shard_ && shard_->elements() > 0;
    const std::uint32_t before = link_.rank();
    const std::vector<net::Member> members = link_.meet(has_state ? shard_->version() : 0, has_state);
    if (link_.rank() != before && link_.rank() < options_.servers) ++job_.run_.promoted;
    const bool follows = link_.rank() >= options_.servers;
    workers_ = static_cast<std::uint32_t>(of_role(members, Role::worker).size());
    if (!shard_ || follows) {
      server::ShardOptions options = made_.options;
      options.workers = workers_;
      shard_.emplace(options, parallel_, memory_);
    } else {
      shard_->begin_epoch(workers_);
    }
    {
      Links links(job_, place_, link_, members, options_.goes_on());
      const auto buggy = buggy_ ? buggy_->links(links.transport(), link_.self()) : nullptr;
      net::Transport& transport = buggy ? *buggy : links.transport();
      follows ? follow(transport) : serve(transport);
    }
    record();
    link_.report();
  }

 private:
  bool finished() {
    link_.check();
    return link_.finished();
  }

  void serve(net::Transport& transport) {
    whole_ = true;
    std::optional<server::Replication> replication;
    if (options_.replicas > 0)
      replication.emplace(*shard_, Peer{Role::server, link_.rank() + static_cast<std::uint32_t>(options_.servers)});
    server::serve(
        *shard_, transport, job_.network_.clock(), [this] { return finished(); }, nullptr, nullptr,
        replication ? &*replication : nullptr);
  }

  void follow(net::Transport& transport) {
    server::Follower follower(*shard_, {Role::server, link_.rank() - static_cast<std::uint32_t>(options_.servers)});
    whole_ = false;
    try {
      server::follow(follower, transport, job_.network_.clock(), [this] { return finished(); });
    } catch (const Error&) {
      whole_ = follower.whole();
      throw;
    }
  }

  void record() {
    SimulatedRun::Server mine{.lived = true, .version = shard_->version(), .most_lag = 0, .state = {}};
    for (const server::StalenessRecord& of : shard_->staleness()) mine.most_lag = std::max(mine.most_lag, of.most_lag);
    if (options_.replicas > 0) {
      shard_->begin_epoch(workers_);
      std::vector<net::Outgoing> frames;
      shard_->snapshot({}, frames);
      for (const net::Outgoing& frame : frames)
        mine.state.insert(mine.state.end(), frame.payload.begin(), frame.payload.end());
    }
    job_.run_.servers[link_.rank()] = std::move(mine);
  }

  Simulation& job_;
  const JobOptions& options_;
  Control::Link& link_;
  const std::size_t place_;
  const JobShard made_;
  const std::unique_ptr<BuggyServer> buggy_;
  MemoryLedger memory_;
  Parallel parallel_{1};
  std::optional<server::Shard> shard_;
  std::uint32_t workers_ = 0;  ///< of the epoch
  bool whole_ = false;
};

/// As worker/role.cpp has it.
class Simulation::WorkerLife {
 public:
  WorkerLife(Simulation& job, Control::Link& link, std::size_t place)
      : job_(job), link_(link), place_(place), setup_(job.scenario_.job, names_.workers, names_.optimizers) {}

  void live_epoch() {
    const std::vector<net::Member> members = link_.meet(reached_, kept_.has_value());
    setup_.share_among(of_role(members, Role::worker).size());
    const worker::TrainSetup& setup = setup_;
    const bool stays = setup.strategy().ring || setup.job().goes_on();
    job_.run_.left = setup.job().workers;
    Links links(job_, place_, link_, members, stays);
    const auto group = setup.strategy().ring ? make_group(links.transport()) : nullptr;
    Events events(job_.network_.clock());
    worker::Training training(
        setup, {.rank = {link_.rank()}, .replicas = setup.job().replicas},
        {.memory = memory_,
         .clock = job_.network_.clock(),
         .events = events,
         .transport = group ? nullptr : &links.transport(),
         .group = group.get()},
        {.check = [this] { link_.check(); },
         .kept = link_.epoch() > 0 && setup.job().recovery == "workers" ? &kept_ : nullptr,
         .begins = [this, told = false](std::uint64_t step) mutable { begin(step, std::exchange(told, true)); }});
    train(training, events);
    link_.report();
    link_.done();
    if (link_.rank() == 0) job_.run_.epochs = link_.epoch();
    if (stays) link_.await_finish(links.transport());
  }

 private:
  void begin(std::uint64_t step, bool told) {
    reached_ = step;
    kept_.reset();
    if (!told) link_.resumed(step);
  }

  void train(worker::Training& training, Events& events) {
    SimulatedRun::Worker& mine = job_.run_.workers[link_.rank()];
    mine = {};
    Steps observer(mine.steps);
    events.listen(observer, Events::Wanted::reports);
    try {
      training.run();
    } catch (const Error&) {
      if (auto kept = training.keep()) kept_ = std::move(kept);
      throw;
    }
    training.read([&](ConstElements values) {
      const auto tensor = values.as<float>();
      mine.parameters.insert(mine.parameters.end(), tensor.begin(), tensor.end());
    });
  }

  std::unique_ptr<ring::ProcessGroup> make_group(net::Transport& transport) {
    ring::LinkOptions options;
    options.group.check = [this] { link_.check(); };
    options.tuning = ring::Tuning::built_in();
    const JobOptions& job = setup_.job();
    if (job.algorithm != "auto") options.algorithm = ring::parse_algorithm("--algorithm", job.algorithm);
    options.segment_bytes = 512;  // so that a vector is several frames
    options.clock = &job_.network_.clock();
    return ring::make_link_group(transport, link_.rank(), job.workers, std::move(options));
  }

  Simulation& job_;
  Control::Link& link_;
  const std::size_t place_;
  worker::TrainSetup setup_;
  MemoryLedger memory_;
  std::uint64_t reached_ = 0;
  std::optional<worker::KeptState> kept_;
};

std::string wrong_with_worker(const JobOptions& job, const SimulatedRun& run, std::size_t rank) {
  const std::vector<std::uint64_t>& steps = run.workers[rank].steps;
  // In a later epoch than the first, those that were left.
  const std::uint64_t first = run.epochs == 0 ? 0 : *job.steps - std::min<std::uint64_t>(steps.size(), *job.steps);
  for (std::uint64_t i = 0; i < std::max<std::size_t>(*job.steps - first, steps.size()); ++i)
    if (steps.size() != *job.steps - first || steps[i] != first + i)
      return fmt::format("worker {} made {} steps, not {} .. {} in order", rank, steps.size(), first, *job.steps - 1);
  return "";
}

std::string wrong_with_server(const JobOptions& job, const SimulatedRun& run, std::size_t rank) {
  const SimulatedRun::Server& server = run.servers[rank];
  if (!server.lived) return run.crashes > 0 ? "" : fmt::format("server {} did not live to the end", rank);
  const Consistency consistency = parse_consistency(job.consistency, 0);
  const std::uint64_t updates = *job.steps * (consistency.each_push_updates ? job.workers : 1);
  if (server.version != updates)
    return fmt::format("server {} made {} updates, expected {}", rank, server.version, updates);
  if (consistency.bound && server.most_lag > *consistency.bound)
    return fmt::format("server {} saw a lag of {} under {}", rank, server.most_lag, job.consistency);
  if (rank >= job.servers && run.servers[rank - job.servers].lived &&
      server.state != run.servers[rank - job.servers].state)
    return fmt::format("server {} has something else than server {}, which it follows", rank, rank - job.servers);
  return "";
}

bool same(const std::vector<float>& a, const std::vector<float>& b, float apart) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](float x, float y) { return x == y || std::abs(x - y) <= apart; });
}

/// The first thing that does not hold of a run; "" where all does.
std::string wrong(const JobOptions& job, const SimulatedRun& run, const SimulatedRun* quiet) {
  const float apart = run.left < job.workers ? 1e-4F : 0;
  for (std::size_t rank = 0; rank < run.left; ++rank) {
    if (std::string text = wrong_with_worker(job, run, rank); !text.empty()) return text;
    if (quiet != nullptr && !same(run.workers[rank].parameters, quiet->workers[rank].parameters, apart))
      return fmt::format("worker {} ended with other parameters than where nothing goes wrong", rank);
  }
  for (std::size_t rank = 0; rank < run.servers.size(); ++rank)
    if (std::string text = wrong_with_server(job, run, rank); !text.empty()) return text;
  return "";
}

}  // namespace

SimulatedRun simulate(const Scenario& scenario) { return Simulation(scenario).run(); }

Examiner::Totals& Examiner::Totals::operator+=(const Totals& other) {
  retransmitted += other.retransmitted;
  crashed += other.crashed;
  crashes += other.crashes;
  promoted += other.promoted;
  begun_anew += other.begun_anew;
  shrunk += other.shrunk;
  return *this;
}

const SimulatedRun& Examiner::quiet(JobOptions job) {
  job.max_restarts = job.min_workers = job.replicas = 0;
  job.recovery = "checkpoint";
  const std::string key = to_json(job);
  const auto found = quiet_.find(key);
  if (found != quiet_.end()) return found->second;
  Scenario scenario = draw_scenario(0);
  scenario.job = job;
  scenario.network.trouble = {};
  scenario.network.deaths.clear();
  scenario.network.peers = peers_of(job);
  return quiet_[key] = simulate(scenario);
}

std::optional<std::string> Examiner::examine(std::uint64_t seed, Bug bug) {
  Scenario scenario = draw_scenario(seed);
  scenario.bug = bug;
  std::string finding;
  try {
    const SimulatedRun run = simulate(scenario);
    totals_ += {run.retransmitted, run.crashes > 0 ? 1U : 0U,
                run.crashes,       run.promoted,
                run.begun_anew,    run.left < scenario.job.workers ? 1U : 0U};
    const bool exact = scenario.job.consistency == "bsp";
    finding = wrong(scenario.job, run, exact ? &quiet(scenario.job) : nullptr);
  } catch (const std::exception& error) {
    finding = error.what();
  }
  if (finding.empty()) return std::nullopt;
  return fmt::format("seed {}: {} [{}]", seed, finding, to_string(scenario));
}

}  // namespace psring::test
