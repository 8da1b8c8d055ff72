#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <psring/bench/predict/workload.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/job.h>
#include <psring/ring/plan/tuning.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::bench {

/// Hosts that are connected by network cards, with workers that are connected by faster links within each host.
struct Mesh {
  std::size_t hosts = 1;
  std::size_t workers_per_host = 1;
  net::LinkSpec within{200e9, Nanoseconds{0}};  ///< of each worker, each way
  net::LinkSpec between{25e9, Nanoseconds{0}};  ///< of each host's card, each way; its workers share the card
  bool one_machine = false;                     ///< the hosts are containers of one machine and share its processors
  /// Cards carry frames in the order in which they are sent (--link, the simulator). Else they share their rate among
  /// the frames to several peers, as TCP does.
  bool in_order = false;

  std::size_t workers() const { return hosts * workers_per_host; }
};

/// The cost of a message between two processes, beyond what a network card needs for its bytes.
struct MessageCosts {
  double hop_s = 0;  ///< from the call of the sender until the receiver has the message
  double hop_s_per_byte = 0;
  double work_s = 0;  ///< of processors, at both ends together
  double wake_s = 0;  ///< more work of processors, if both ends sleep
  double work_s_per_byte = 0;
};

/// The costs of a host beside computing. Bytes of a server's work are counted as the simulator counts them: each
/// gradient once, and what an update reads and writes.
struct HostCosts {
  MessageCosts collective;          ///< between workers
  MessageCosts exchange;            ///< between a worker and a server
  double aggregate_s_per_byte = 0;  ///< at a server
  double update_s_per_byte = 0;     ///< at a server or a worker
  std::size_t state_values = 0;     ///< of the optimizer, for each element
  double within_hop_s = 0;          ///< a message through a host's shared memory
  double copy_s_per_byte = 0;       ///< of memory: a byte through a host's shared memory
  double sleep_s = 0;               ///< by which a sleep of --compute sleep ends too late
  double slowdown = 1;              ///< of computing while communication runs
  double deviation = 0;             ///< of a worker's time for computing, relative: stragglers
  double processors = 0;            ///< of a host; 0: as many as its processes can use
  bool one_host = false;            ///< all processes of the job share one host's processors (--link, --one-machine)
  bool device = false;              ///< layers are computed by a device, not by the host's processors
};

/// The stations that can bound a step.
enum class StepStation : std::uint8_t {
  within,    ///< a worker's link within its host
  card_out,  ///< the card of a worker's host
  card_in,
  server_card_in,  ///< the card of a server's host; colocated servers use the worker's
  server_card_out,
  server,
  processors,  ///< of a host: its processes' work on messages, aggregation and updates
  count
};

/// A step as the model sees it, in steady state.
struct StepEstimate {
  double step_s = 0;
  double compute_s = 0;  ///< in a pipeline the mean over the stages, as are the next two
  double exposed_s = 0;  ///< step - compute - time that a stage waits for others
  double bubble = 0;     ///< share of the step in which a stage waits for messages of others
  double link_s = 0;     ///< time for which the busiest card carries bytes, one direction
  std::string bound;     ///< "compute", "worker link", "server link", "server", "processors", "link within host",
                         ///< "bubble", "latency"
};

/// The bytes that an update reads and writes for each element: gradient, parameter and `state_values` values of
/// optimizer state in f32.
double update_bytes_per_element(const JobOptions& job, std::size_t state_values, DType parameters, DType gradients);

/// Computes the time of a step of a job on a mesh: the worker's passes in order, with the communication of its strategy
/// in the queues of cards and servers. In a pipeline one worker of each stage is played; each waits for the others'
/// messages. Under ssp and asp each push is an update, and no worker waits for another. `stages`: make_workloads.
/// REQUIRES: the work is cut among the owners of the job.
StepEstimate estimate_step(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                           const Mesh& mesh, const HostCosts& costs);

/// A bound that no order of messages beats, quick to compute: with standalone servers the time for which the busiest
/// card carries a step's bytes; otherwise 0. REQUIRES: as estimate_step.
double least_step_s(const JobOptions& job, const worker::StrategyKind& kind, std::span<const Workload> stages,
                    const Mesh& mesh);

/// A synchronous step waits for the slowest of its n workers. Both functions return the expected time of the slowest,
/// relative to the time that a worker needs on average.

/// n independent normal values of mean 1 and standard deviation `deviation` (Blom, 1958).
double expected_slowest(std::size_t n, double deviation);

/// The workers of a job with the faults `slow` and `jitter`: worker w's time is uniform between s (1 - j) and s (1 +
/// j). The expected maximum is the integral of 1 - P(all are faster than x) over x. 1 without such faults.
double expected_slowest(const JobOptions& job);

}  // namespace psring::bench
