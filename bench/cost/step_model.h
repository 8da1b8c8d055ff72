#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <psring/bench/cost/mesh.h>
#include <psring/bench/cost/workload.h>
#include <psring/common/proc/job.h>
#include <psring/ring/plan/tuning.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::bench {

/// The costs of a host beside computing. Bytes of a server's work are counted as the simulator counts them: each
/// gradient once, and what an update reads and writes.
struct HostCosts {
  double server_s_per_byte = 0;  ///< aggregation and update at a server
  double update_s_per_byte = 0;  ///< an update at a worker
  double frame_s = 0;            ///< a frame's way through a server's or worker's processor
  double call_s = 0;             ///< a collective's
  double round_s = 0;            ///< a round of a collective, on top of the link's delay
  double step_s = 0;             ///< of each step, whatever it does
  double slowdown = 1;           ///< of computing while communication runs
  double deviation = 0;          ///< of a worker's time for computing, relative: stragglers
};

/// The stations that can bound a step.
enum class StepStation : std::uint8_t {
  within,    ///< a worker's link within its host
  card_out,  ///< the card of a worker's host
  card_in,
  server_card_in,  ///< the card of a server's host; colocated servers use the worker's
  server_card_out,
  server,
  count
};

/// A step as the model sees it, in steady state.
struct StepEstimate {
  double step_s = 0;
  double compute_s = 0;
  double exposed_s = 0;  ///< step - compute
  double link_s = 0;     ///< time for which the busiest card carries bytes, one direction
  std::string bound;     ///< "compute", "worker link", "server link", "server", "link within host", "latency"
  double bound_s = 0;    ///< time for which the bound works in a step
};

/// Computes the time of a step of a job on a mesh: the worker's passes in order, with the communication of its strategy
/// in the queues of cards and servers. REQUIRES: bsp; `work` is cut among the owners of the job.
StepEstimate estimate_step(const JobOptions& job, const worker::StrategyKind& kind, const Workload& work,
                           const Mesh& mesh, const HostCosts& costs);

}  // namespace psring::bench
