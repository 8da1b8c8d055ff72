#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include <psring/common/base/events/events.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/common/proc/job.h>
#include <psring/optim/optimizers.h>
#include <psring/server/aggregator.h>
#include <psring/view/step/simulated_control.h>
#include <psring/view/step/watched_group.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/registries.h>

namespace psring::view {

/// Returns a job's processes by their places on the network: workers, servers, their followers, the coordinator.
std::vector<net::Peer> peers_of(const JobOptions& job);

/// Hears what a simulated job does. One process runs at a time, so calls come one after another.
class JobListener : public CallListener {
 public:
  /// A process joins a membership epoch. Returns a listener for the details of its events; null: none. `memory` lives
  /// until `leaves`.
  virtual EventListener* joins(std::size_t place, net::Peer duty, const MemoryLedger& memory, Moment now) = 0;
  virtual void leaves(std::size_t place) = 0;
  /// A worker predicts the bytes of a step, and the memory.
  virtual void predicts(std::size_t place, const worker::Prediction& prediction) = 0;
};

/// Changes the links of a simulated server, over all epochs: a test plants bugs with it.
class ServerLinks {
 public:
  virtual ~ServerLinks() = default;
  /// `self`: the server's duty in the epoch. `transport` outlives the returned transport.
  virtual std::unique_ptr<net::Transport> wrap(net::Transport& transport, net::Peer self) = 0;
};

/// A job, and the network for it.
struct SimulatedJobOptions {
  JobOptions job;
  net::SimulatedNetwork::Options network;  ///< its peers are peers_of(job)
  SimulatedControl::Delays delays;
  /// True: frames go over reliable links, which the network's faults need.
  bool reliable = false;
  Nanoseconds begins_within{0};        ///< workers begin so far apart at most, as network.seed draws it
  Nanoseconds restart_time{0};         ///< from the death of a process by --fault until it runs again
  std::filesystem::path model = {};    ///< worker 0 saves the trained model there; empty: not saved
  double flops_per_second = 0;         ///< how fast each worker computes; 0: computing takes no time
  double server_bytes_per_second = 0;  ///< how fast each server aggregates and updates; 0: in no time
  std::size_t segment_bytes = 0;       ///< the largest payload of a frame in a ring; 0: the tuning table's
  JobListener* listener = nullptr;     ///< null: nobody listens
  std::function<std::unique_ptr<ServerLinks>(std::size_t pushes)> server_links = {};
};

/// The result of a job.
struct SimulatedRun {
  struct Worker {
    std::vector<float> parameters;     ///< in the model's order, with the layers' buffers
    std::vector<std::uint64_t> steps;  ///< in the order in which they ended, in the last epoch
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  struct Server {
    bool lived = false;  ///< to the end: a server that is lost after the workers were done is not replaced
    std::uint64_t version = 0;
    std::uint64_t most_lag = 0;
    std::vector<std::byte> state;  ///< if the server has a follower, or is one
    std::vector<std::byte> rows;   ///< the records of tables, by ascending hashed key
    friend bool operator==(const Server&, const Server&) = default;
  };
  std::vector<Worker> workers;
  std::vector<Server> servers;      ///< then followers, by their duties at the end
  std::size_t left = 0;             ///< number of workers in the last epoch
  std::uint64_t crashes = 0;        ///< number of running processes that died
  std::uint64_t epochs = 0;         ///< membership epochs before the last
  std::uint64_t promoted = 0;       ///< number of times that a server and its follower changed places
  std::uint64_t begun_anew = 0;     ///< number of times that all processes began anew
  Nanoseconds time{0};              ///< of the network's clock
  std::uint64_t retransmitted = 0;  ///< frames
  friend bool operator==(const SimulatedRun&, const SimulatedRun&) = default;
};

/// The names that a job's options resolve.
struct JobNames {
  const worker::Registries& workers;
  const optim::OptimizerRegistry& optimizers;
  const Registry<server::Aggregator>& aggregators;
};

/// Runs a whole job in this process over a simulated network: workers, servers and coordinator. TrainSetup, Training,
/// Shard, serve, follow and the coordinator's state machine are those of the programs. Equal options repeat a run to
/// the nanosecond and to the bit. Throws the first error of a role, and the job's failure.
SimulatedRun simulate(const SimulatedJobOptions& options, const JobNames& names);

}  // namespace psring::view
