#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/net/sim/reliable.h>
#include <psring/common/proc/fault.h>
#include <psring/view/step/simulated_job.h>
#include <psring/view/step/simulated_links.h>
#include <psring/worker/train_setup.h>

namespace psring::view {

/// The parts of a simulated job that all its processes use. One process at a time runs.
struct Simulation {
  Simulation(const SimulatedJobOptions& options, const JobNames& names);

  const SimulatedJobOptions& options;
  const JobNames& names;
  worker::TrainSetup setup;
  net::SimulatedNetwork network;
  SimulatedControl control;
  SimulatedRun run;
};

/// The links of a process in one epoch: simulated links, with reliable links above them if the job wants them.
class ProcessLinks {
 public:
  /// `stays`: the process stays until the job has ended, so that no peer waits for frames that it sent.
  ProcessLinks(Simulation& simulation, std::size_t place, SimulatedControl::Link& control,
               const std::vector<net::Member>& members, bool stays);
  ~ProcessLinks();
  ProcessLinks(const ProcessLinks&) = delete;
  ProcessLinks& operator=(const ProcessLinks&) = delete;

  net::Transport& transport() { return reliable_ ? static_cast<net::Transport&>(*reliable_) : links_; }

 private:
  Simulation& simulation_;
  SimulatedControl::Link& control_;
  SimulatedLinks links_;
  ByteLedger bytes_;
  std::unique_ptr<net::ReliableTransport> reliable_;  ///< null: the network loses nothing
};

/// The events of a process in one epoch, for the job's listener.
class ProcessEvents {
 public:
  ProcessEvents(Simulation& simulation, std::size_t place, net::Peer duty, const MemoryLedger& memory);
  ~ProcessEvents();
  ProcessEvents(const ProcessEvents&) = delete;
  ProcessEvents& operator=(const ProcessEvents&) = delete;

  Events& events() { return events_; }

 private:
  Simulation& simulation_;
  const std::size_t place_;
  Events events_;
};

/// Carries out the kills of --fault by step, for the first process at a place: like FaultTrigger, which kills by
/// signal.
class SimulatedKills {
 public:
  SimulatedKills(Simulation& simulation, std::size_t place);
  /// Throws Died if the process is to die at this step.
  void at(std::uint64_t step) const;

 private:
  Simulation& simulation_;
  const std::size_t place_;
  std::vector<Fault> kills_;
};

/// A role's process over all membership epochs.
class SimulatedRole {
 public:
  virtual ~SimulatedRole() = default;
  /// Takes part in one epoch. Returns when the job has ended; throws peer_lost when the epoch has.
  virtual void live_epoch() = 0;
};

// REQUIRES: all arguments outlive the role.
std::unique_ptr<SimulatedRole> make_simulated_worker(Simulation& simulation, SimulatedControl::Link& control,
                                                     std::size_t place);
std::unique_ptr<SimulatedRole> make_simulated_server(Simulation& simulation, SimulatedControl::Link& control,
                                                     std::size_t place);

}  // namespace psring::view
