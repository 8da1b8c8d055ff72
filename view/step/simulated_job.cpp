#include <exception>
#include <utility>

#include <signal.h>

#include <psring/common/base/text/error.h>
#include <psring/view/step/simulated_job.h>
#include <psring/view/step/simulation.h>

namespace psring::view {
namespace {

using net::Peer;
using net::Role;

/// The longest time that a reliable link takes to deliver a frame: one of 40 transmissions arrives.
constexpr Nanoseconds kLinger = std::chrono::seconds(20);

net::SimulatedNetwork::Options network_of(const SimulatedJobOptions& options) {
  net::SimulatedNetwork::Options network = options.network;
  network.peers = peers_of(options.job);
  return network;
}

/// Runs the processes of a job, each in the thread of its place.
class Processes {
 public:
  explicit Processes(Simulation& simulation) : simulation_(simulation), places_(peers_of(simulation.options.job)) {}

  void run() {
    simulation_.network.run([&](std::size_t place) {
      try {
        place + 1 < places_.size() ? live(place) : simulation_.control.run();
      } catch (...) {
        if (!failed_) failed_ = std::current_exception();
      }
    });
    if (simulation_.control.result().failure) throw Error(*simulation_.control.result().failure);
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  /// One of a place's processes.
  void live(std::size_t place) {
    SimulatedControl& control = simulation_.control;
    try {
      if (!control.await_start(place)) return;
      SimulatedControl::Link link(control, place);
      try {
        const auto role = places_[place].role == Role::worker ? make_simulated_worker(simulation_, link, place)
                                                              : make_simulated_server(simulation_, link, place);
        while (!outlived(place, link, *role)) {
        }
      } catch (const std::exception& exception) {
        if (simulation_.network.dead(place)) throw Died();
        link.fail(to_error(exception));
        control.exited(place, exit_status(to_error(exception).kind()), 0);
        throw;
      }
      control.exited(place, 0, 0);
    } catch (const Died&) {
      if (control.exited(place, 0, SIGKILL)) ++simulation_.run.crashes;
    }
  }

  /// As run_role (common/proc/role.h). Returns false if the job goes on in another epoch.
  bool outlived(std::size_t place, SimulatedControl::Link& link, SimulatedRole& role) {
    try {
      role.live_epoch();
      return true;
    } catch (const Error& error) {
      if (simulation_.network.dead(place)) throw Died();
      if (!simulation_.setup.job().goes_on() || error.kind() != ErrorKind::peer_lost) throw;
      link.regroup(error);
      return false;
    }
  }

  Simulation& simulation_;
  const std::vector<Peer> places_;
  std::exception_ptr failed_;
};

}  // namespace

std::vector<Peer> peers_of(const JobOptions& job) {
  std::vector<Peer> peers;
  for (std::uint32_t rank = 0; rank < job.workers; ++rank) peers.push_back({Role::worker, rank});
  for (std::uint32_t rank = 0; rank < job.servers * (1 + job.replicas); ++rank) peers.push_back({Role::server, rank});
  peers.push_back({Role::coordinator, 0});
  return peers;
}

Simulation::Simulation(const SimulatedJobOptions& of, const JobNames& all_names)
    : options(of),
      names(all_names),
      setup(of.job, all_names.workers, all_names.optimizers),
      network(network_of(of)),
      control(network, peers_of(of.job), peers_of(of.job).size() - 1, of.job, of.delays) {
  run.workers.resize(of.job.workers);
  run.servers.resize(of.job.servers * (1 + of.job.replicas));
}

ProcessLinks::ProcessLinks(Simulation& simulation, std::size_t place, SimulatedControl::Link& control,
                           const std::vector<net::Member>& members, bool stays)
    : simulation_(simulation),
      control_(control),
      links_(simulation.network, place, peers_of(simulation.options.job), members,
             simulation.options.reliable ? std::nullopt : std::optional(control.epoch())) {
  if (simulation.options.reliable) {
    reliable_ =
        net::make_reliable_transport({std::shared_ptr<void>(), &links_}, {.link = {.incarnation = control.epoch()},
                                                                          .clock = &simulation.network.clock(),
                                                                          .ledger = &bytes_,
                                                                          .keeper = false,
                                                                          .linger = stays ? Nanoseconds(0) : kLinger});
    for (const net::Member& member : members)
      if (member.peer != control.self()) reliable_->meet(member.peer, control.epoch());
  }
  control_.wakes(&transport());
}

ProcessLinks::~ProcessLinks() {
  control_.wakes(nullptr);
  reliable_.reset();
  simulation_.run.retransmitted += bytes_.total(ByteLedger::Direction::sent, "retransmitted").messages;
}

ProcessEvents::ProcessEvents(Simulation& simulation, std::size_t place, Peer duty, const MemoryLedger& memory)
    : simulation_(simulation), place_(place), events_(simulation.network.clock()) {
  if (simulation.options.listener == nullptr) return;
  if (EventListener* const listener = simulation.options.listener->joins(place, duty, memory, events_.now()))
    events_.listen(*listener, Events::Wanted::begins);
}

ProcessEvents::~ProcessEvents() {
  if (simulation_.options.listener != nullptr) simulation_.options.listener->leaves(place_);
}

SimulatedKills::SimulatedKills(Simulation& simulation, std::size_t place) : simulation_(simulation), place_(place) {
  if (simulation.network.incarnation(place) > 0) return;
  for (const Fault& fault : faults_of(simulation.options.job.fault, peers_of(simulation.options.job)[place]))
    if (fault.kind == Fault::Kind::kill && fault.step) kills_.push_back(fault);
}

void SimulatedKills::at(std::uint64_t step) const {
  for (const Fault& kill : kills_) {
    if (step < *kill.step) continue;
    simulation_.network.kill(place_, simulation_.options.restart_time);
    throw Died();
  }
}

SimulatedRun simulate(const SimulatedJobOptions& options, const JobNames& names) {
  Simulation simulation(options, names);
  Processes(simulation).run();
  simulation.run.begun_anew = simulation.control.begun_anew();
  simulation.run.time = simulation.network.clock().now() - Moment{};
  return std::move(simulation.run);
}

}  // namespace psring::view
