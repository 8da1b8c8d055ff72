#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <psring/cli/commands.h>
#include <psring/cli/memory_report.h>
#include <psring/cli/step_times.h>
#include <psring/common/proc/job.h>

namespace psring::cli {

/// Payload bytes of one step: what was measured over the run, and what the strategy predicts.
struct ByteCheck {
  std::string role;            ///< "worker 0" (with a server that its process has), "servers"
  std::string direction;       ///< "sent", "received", "replicated" (to followers)
  std::uint64_t measured = 0;  ///< of the whole run
  std::optional<std::uint64_t> predicted;
  bool ok() const { return !predicted || *predicted == measured; }
};

/// The most that a role booked of a category at once, and what the strategy predicts.
struct MemoryCheck {
  std::string role;      ///< "worker 0", "server 1"
  std::string category;  ///< of the memory ledger
  std::uint64_t peak = 0;
  std::optional<std::uint64_t> predicted;
  bool ok() const { return !predicted || *predicted == peak; }
};

/// Of the gradients of a worker, over all pieces of all servers.
struct StalenessSummary {
  std::uint64_t updates = 0;
  std::uint64_t dropped = 0;  ///< that came too late for their update (--backup-workers)
  std::uint64_t sum = 0;      ///< of others' updates between a gradient's values and its own
  std::uint64_t most = 0;
  std::uint64_t most_lag = 0;
  std::vector<std::uint64_t> bins;  ///< updates by staleness

  double mean() const { return updates == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(updates); }
  /// The staleness that a share of the updates does not exceed.
  std::uint64_t quantile(double share) const;
  double dropped_share() const {
    return dropped == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(dropped + updates);
  }
  void add(const StalenessSummary& other);
};

/// What a run comes to, out of its roles' reports.
struct Summary {
  std::string strategy;
  std::uint64_t steps = 0;
  std::uint64_t skipped_steps = 0;  ///< whose gradients were not finite (--loss-scale)
  double samples_per_second = 0;    ///< the sum of the workers' own, each over its steps
  double step_seconds = 0;          ///< median over steps, of the slowest worker
  double step_p10_seconds = 0;      ///< of that worker, a tenth of its steps is faster
  double step_p90_seconds = 0;      ///< of that worker, a tenth is slower
  double exposed_seconds = 0;       ///< of a step, median over steps, of the worker that waits most
  double mean_exposed_seconds = 0;  ///< the same, mean over steps: what the prediction is of
  std::optional<double> predicted_exposed_seconds;
  std::vector<WorkerTimes> worker_times;  ///< by rank
  double server_busy_seconds = 0;         ///< of a step, the busiest server's, mean over steps
  double final_loss = 0;                  ///< of the last step, mean over its samples
  std::optional<double> test_accuracy;
  std::optional<double> test_loss;
  std::uint64_t worker_peak_bytes = 0;  ///< the largest worker's booked memory, with its process's server's
  std::uint64_t server_peak_bytes = 0;  ///< the largest server's
  std::vector<ByteCheck> bytes;
  std::vector<MemoryCheck> memory;
  SystemMemory system_memory;
  std::size_t losses = 0;                         ///< of processes, after which the job went on
  std::size_t begun_with = 0;                     ///< workers
  std::size_t workers = 0;                        ///< at the end
  std::vector<double> recovery_seconds;           ///< from when one was noticed until all workers went on
  std::vector<StalenessSummary> staleness;        ///< by worker; empty where there is nothing to say of it
  std::map<std::string, std::string> processors;  ///< of the workers: control::Hello::processor
  bool same_bits = true;  ///< as the strategy declares: as `single` with as many virtual workers; else but for rounding

  /// Equal bits are not promised then: kernels are chosen for the processor.
  bool mixed_processors() const;
  /// Bytes and memory are as predicted.
  bool ok() const;
  /// Is anything predicted of the memory of "worker" or "server" roles, and all of that so? Nothing: as predicted.
  std::optional<bool> memory_ok(std::string_view role) const;
};

inline constexpr const char* kManifestFile = "run.json";

/// Writes the manifest: what is run, by which program; and once the roles have reported, on which hosts and processors.
void write_manifest(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation,
                    const std::map<std::string, std::string>& hosts = {},
                    const std::map<std::string, std::string>& processors = {});

/// Are there different ones among them?
bool are_mixed(const std::map<std::string, std::string>& processors);

/// Reads the reports in a run folder and writes summary.json, metrics' companion, and the manifest with its hosts.
/// Throws data where a report is missing or broken.
Summary summarise(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation);

/// Has the run folder reports of workers that trained? A user's own program may only push and pull.
bool has_training(const std::filesystem::path& folder);

/// "went on after 2 losses, ...": of a run that did. What repeated steps move and keep is not predicted.
std::string losses_line(const Summary& summary);

/// "3 steps skipped ...": of a run that did.
std::string skipped_line(const Summary& summary);

/// "1 worker", "2 workers".
std::string count_of(std::size_t count, std::string_view what);

/// Joins the processes' traces to trace.json.
void join_traces(const std::filesystem::path& folder);

/// Two or three lines for people: loss, accuracy, speed, and where everything lies.
std::string describe(const Summary& summary, const std::filesystem::path& folder);

}  // namespace psring::cli
