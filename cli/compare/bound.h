#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace psring::cli {

/// The resource that a step cannot be faster than.
enum class Bound : std::uint8_t {
  compute,         ///< every worker computes for most of the step
  slowest_worker,  ///< one worker computes for longer than the others, which wait for it
  processors,      ///< threads wait for a processor that another thread has
  memory,
  worker_link,
  server_link,
  server,   ///< workers wait while a server works
  latency,  ///< workers wait for most of the step, and no resource is busy meanwhile
  unknown   ///< no resource that was measured is busy for half of the step
};

/// "compute", "slowest worker", "processors", "memory", "worker link", "server link", "server", "latency", "unknown"
std::string_view to_string(Bound bound);

/// The time for which a step cannot go without a resource.
struct Floor {
  Bound bound;
  double seconds = 0;
};

/// Measurements of a step; bytes are those of one step. A figure that was not measured is empty.
struct StepFigures {
  double step_s = 0;
  double exposed_s = 0;  ///< the part of it in which a worker waits for communication
  /// How tensors travel: through memory that processes share, or through sockets.
  bool sockets = false;
  std::optional<double> link_bytes_per_s = {};  ///< rate of each process's card, each way (--link)
  /// Through the card of the worker that moves most, the busier way. A card of another rate (--fault link) counts as if
  /// it had this one: twice the bytes at half of the rate.
  double worker_bytes = 0;
  double server_bytes = 0;  ///< the same of the busiest server
  double memory_bytes = 0;  ///< the least that all processes of the host read and write
  std::optional<double> memory_bytes_per_s = {};
  std::optional<double> processors_used = {};  ///< by all processes of the job on this host, on average
  std::size_t threads = 1;  ///< computing threads of all processes; a worker with --compute sleep has none
  std::size_t processors = 1;
  std::optional<double> others = 0;  ///< processors that other programs took meanwhile
  /// Share of its time for which the most delayed worker was ready to run, but had no processor. Nothing if the kernel
  /// does not count it.
  std::optional<double> run_delay;
  bool sleeps = false;         ///< --compute sleep
  bool gpus = false;           ///< workers compute on GPUs
  std::size_t slowest = 0;     ///< rank of the worker that computes for the longest time in a step
  double slowest_busy_s = 0;   ///< time of a step in which this worker does not wait for communication
  double slowest_delay_s = 0;  ///< time of a step in which this worker is ready to run but has no processor
  double others_busy_s = 0;    ///< the same as slowest_busy_s, median of the other workers; 0: there are none
  double others_exposed_s = 0;
  std::optional<double> server_busy_s = {};  ///< time of a step in which the busiest server works on frames

  double busy_s() const { return std::max(step_s - exposed_s, slowest_busy_s); }
  /// Returns the time for which all processors together work in a step, for this job and other programs.
  double processors_s() const {
    return step_s * std::min(1.0, (processors_used.value_or(0) + others.value_or(0)) / static_cast<double>(processors));
  }
};

/// Returns the floor of each resource that was measured, in the order in which bound_of looks at them. A floor may be
/// longer than the step: then it is wrong, and names nothing.
std::vector<Floor> floors_of(const StepFigures& step);

/// The rule of docs/formulas.md, "What bounds a step": only a resource whose floor is at least half of the step, and
/// not longer than it, bounds the step.
Bound bound_of(const StepFigures& step);

/// Returns why the times of a run cannot be compared with the times of another, such as "4 threads on 2 processors".
/// Empty if they can.
std::string not_comparable(const StepFigures& step);
/// The part of it that other programs are to blame for; they took `others` processors, of `processors`.
std::string disturbed_by(std::optional<double> others, std::size_t processors);

/// The choices of a run that can be changed.
struct Choices {
  std::size_t workers = 1;
  std::size_t servers = 0;
  bool one_worker = false;         ///< the strategy has one worker, whatever --workers says
  bool gathers_twice = false;      ///< gathers parameters for each of the two passes
  bool overlap = true;             ///< false: switched off
  std::size_t prefetch = 1;        ///< 0: switched off
  bool bounded_staleness = false;  ///< ssp: no worker gets more than K steps ahead
};

/// Returns the reason for the bound, in figures: "computes for 2.1 of 2.2 ms".
std::string because(Bound bound, const StepFigures& step);
/// Returns the change to try next.
std::string advice(Bound bound, const StepFigures& step, const Choices& choices);

}  // namespace psring::cli
