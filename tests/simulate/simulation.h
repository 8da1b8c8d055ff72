#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/net/simulated.h>
#include <psring/common/proc/job.h>

namespace psring::test {

/// A job and a network for it, as a seed draws them: what trains, how, and what becomes of its frames.
struct Scenario {
  JobOptions job;
  net::SimulatedNetwork::Options network;
};

/// The job is one of a few thousand; the network is the seed's own.
Scenario draw_scenario(std::uint64_t seed);
/// One line: the flags of the job, and the network.
std::string to_string(const Scenario& scenario);

/// What a job came to.
struct SimulatedRun {
  struct Worker {
    std::vector<float> parameters;
    std::vector<std::uint64_t> steps;  ///< as they ended
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  struct Server {
    std::uint64_t version = 0;
    std::uint64_t most_lag = 0;
    friend bool operator==(const Server&, const Server&) = default;
  };
  std::vector<Worker> workers;
  std::vector<Server> servers;
  Nanoseconds time{0};              ///< of the network's clock
  std::uint64_t retransmitted = 0;  ///< frames
  friend bool operator==(const SimulatedRun&, const SimulatedRun&) = default;
};

/// Runs a whole job, its workers and servers, over reliable links on a simulated network: TrainSetup, Training, Shard
/// and serve are those of the programs. Throws what the first role to fail threw.
SimulatedRun simulate(const Scenario& scenario);

/// Says what is wrong with jobs over bad networks. Belongs to one thread; remembers what jobs come to over a good one.
class Examiner {
 public:
  /// Runs a seed's scenario; what does not hold, or nothing where all does:
  ///   it ends; every worker makes every step once, in order; under bsp all workers end with the bits that they end
  ///   with where the network does nothing wrong, and servers make an update a step; under ssp and asp each push is one
  ///   update; under ssp nobody is further ahead than the bound.
  std::optional<std::string> examine(std::uint64_t seed);
  std::uint64_t retransmitted() const { return retransmitted_; }

 private:
  const SimulatedRun& quiet(const JobOptions& job);

  std::map<std::string, SimulatedRun> quiet_;  ///< by the job
  std::uint64_t retransmitted_ = 0;
};

}  // namespace psring::test
