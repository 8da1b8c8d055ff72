#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <psring/common/net/sim/simulated.h>
#include <psring/common/proc/job.h>
#include <psring/tests/simulate/bugs.h>
#include <psring/view/step/simulated_job.h>

namespace psring::test {

/// A job and a network for it, as a seed draws them: what trains, how, what becomes of its frames, and who crashes
/// when.
struct Scenario {
  JobOptions job;
  net::SimulatedNetwork::Options network;
  view::SimulatedControl::Delays delays;
  Bug bug = Bug::none;
};

/// The job is one of a few thousand; the network is the seed's own.
Scenario draw_scenario(std::uint64_t seed);
/// One line: the flags of the job, and the network.
std::string to_string(const Scenario& scenario);

using view::SimulatedRun;

/// Runs a scenario over reliable links on its network. Throws as view::simulate.
SimulatedRun simulate(const Scenario& scenario);

/// Says what is wrong with jobs over bad networks. Belongs to one thread; remembers what jobs come to over a good one.
class Examiner {
 public:
  /// Runs a seed's scenario; what does not hold, or nothing where all does:
  ///   it ends; every worker makes every step once, in order; under bsp all workers end with the bits that they end
  ///   with where nothing goes wrong, and servers make an update a step; followers have what their servers have; under
  ///   ssp and asp each push is one update; under ssp nobody is further ahead than the bound.
  /// After a crash "every step" is each from the one that the last epoch begins with. Fewer workers than at the
  /// beginning end with nearly the same parameters and rows: sums are of other parts. If gradients of rows travel in
  /// few bits, only the rows' keys and updates are compared.
  std::optional<std::string> examine(std::uint64_t seed, Bug bug = Bug::none);

  /// Sums over all runs that ended.
  struct Totals {
    std::uint64_t retransmitted = 0;  ///< frames
    std::uint64_t crashed = 0;        ///< seeds with a crash of a process that ran
    std::uint64_t crashes = 0;        ///< as in SimulatedRun, with what follows
    std::uint64_t promoted = 0;
    std::uint64_t begun_anew = 0;
    std::uint64_t shrunk = 0;            ///< seeds that ended with fewer workers
    std::uint64_t shrunk_with_rows = 0;  ///< those of them whose model has a table
    Totals& operator+=(const Totals& other);
  };
  const Totals& totals() const { return totals_; }

 private:
  const SimulatedRun& quiet(JobOptions job);

  std::map<std::string, SimulatedRun> quiet_;  ///< by the job
  Totals totals_;
};

}  // namespace psring::test
