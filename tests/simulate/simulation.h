#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/net/sim/simulated.h>
#include <psring/common/proc/job.h>
#include <psring/tests/simulate/bugs.h>
#include <psring/tests/simulate/control.h>

namespace psring::test {

/// A job and a network for it, as a seed draws them: what trains, how, what becomes of its frames, and who crashes
/// when.
struct Scenario {
  JobOptions job;
  net::SimulatedNetwork::Options network;
  Control::Delays delays;
  Bug bug = Bug::none;
};

/// A job's processes, by their places: workers, servers, their followers, the coordinator.
std::vector<net::Peer> peers_of(const JobOptions& job);

/// The job is one of a few thousand; the network is the seed's own.
Scenario draw_scenario(std::uint64_t seed);
/// One line: the flags of the job, and the network.
std::string to_string(const Scenario& scenario);

/// The result of a job.
struct SimulatedRun {
  struct Worker {
    std::vector<float> parameters;
    std::vector<std::uint64_t> steps;  ///< as they ended, in the last epoch
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  struct Server {
    bool lived = false;  ///< to the end: who is lost after the workers were done is not replaced
    std::uint64_t version = 0;
    std::uint64_t most_lag = 0;
    std::vector<std::byte> state;  ///< where it has a follower, or is one
    friend bool operator==(const Server&, const Server&) = default;
  };
  std::vector<Worker> workers;
  std::vector<Server> servers;  ///< then followers; by what they were in the end
  std::size_t left = 0;         ///< workers, in the last epoch
  std::uint64_t crashes = 0;    ///< of processes that ran
  std::uint64_t epochs = 0;     ///< of the membership, before the last
  std::uint64_t promoted = 0;   ///< times that a server and its follower changed places
  std::uint64_t begun_anew = 0;
  Nanoseconds time{0};              ///< of the network's clock
  std::uint64_t retransmitted = 0;  ///< frames
  friend bool operator==(const SimulatedRun&, const SimulatedRun&) = default;
};

/// Runs a whole job, its workers, servers and coordinator, over reliable links on a simulated network: TrainSetup,
/// Training, Shard, serve, follow and the coordinator's state machine are those of the programs. Throws what the first
/// role to fail threw, and what the job failed with.
SimulatedRun simulate(const Scenario& scenario);

/// Says what is wrong with jobs over bad networks. Belongs to one thread; remembers what jobs come to over a good one.
class Examiner {
 public:
  /// Runs a seed's scenario; what does not hold, or nothing where all does:
  ///   it ends; every worker makes every step once, in order; under bsp all workers end with the bits that they end
  ///   with where nothing goes wrong, and servers make an update a step; followers have what their servers have; under
  ///   ssp and asp each push is one update; under ssp nobody is further ahead than the bound.
  /// After a crash "every step" is each from the one that the last epoch begins with. Fewer workers than at the
  /// beginning end with nearly the same parameters: sums are of other parts.
  std::optional<std::string> examine(std::uint64_t seed, Bug bug = Bug::none);

  /// Sums over all runs that ended.
  struct Totals {
    std::uint64_t retransmitted = 0;  ///< frames
    std::uint64_t crashed = 0;        ///< seeds with a crash of a process that ran
    std::uint64_t crashes = 0;        ///< as in SimulatedRun, with what follows
    std::uint64_t promoted = 0;
    std::uint64_t begun_anew = 0;
    std::uint64_t shrunk = 0;  ///< seeds that ended with fewer workers
    Totals& operator+=(const Totals& other);
  };
  const Totals& totals() const { return totals_; }

 private:
  const SimulatedRun& quiet(JobOptions job);

  std::map<std::string, SimulatedRun> quiet_;  ///< by the job
  Totals totals_;
};

}  // namespace psring::test
