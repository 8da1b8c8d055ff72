#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/cluster/manifest.h>
#include <psring/cli/commands.h>
#include <psring/cli/compare/step_times.h>
#include <psring/cli/memory/memory_report.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/job.h>
#include <psring/server/staleness.h>

namespace psring::cli {

/// Payload bytes of a run: measured, and predicted by the strategy.
struct ByteCheck {
  std::string role;            ///< "worker 0" (with the server in its process, if there is one), "servers"
  std::string direction;       ///< "sent", "received", "replicated" (to followers)
  std::uint64_t measured = 0;  ///< of the whole run
  std::optional<std::uint64_t> predicted;
  bool ok() const { return !predicted || *predicted == measured; }
};

/// The peak of one category of a role's booked memory: measured, and predicted by the strategy.
struct MemoryCheck {
  std::string role;      ///< "worker 0", "server 1"
  std::string category;  ///< a category of the memory ledger
  std::uint64_t peak = 0;
  std::optional<std::uint64_t> predicted;
  bool ok() const { return !predicted || *predicted == peak; }
};

/// Staleness of one worker's gradients, over all pieces of all servers.
struct StalenessSummary : server::StalenessRecord {
  double mean() const { return updates == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(updates); }
  /// Returns the staleness that `share` of the updates do not exceed.
  std::uint64_t quantile(double share) const;
  double dropped_share() const {
    return dropped == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(dropped + updates);
  }
};

/// The time in which the stages of a pipeline had nothing to compute, as a share of a step.
struct PipelineSummary {
  std::size_t stages = 0;
  std::size_t micros = 0;          ///< micro-batches of a step
  std::string schedule;            ///< gpipe or 1f1b
  std::size_t most_in_flight = 0;  ///< micro-batches whose activations a stage keeps at once, at most
  double bubble = 0;               ///< mean over the workers; of each, the median of its steps
  double predicted = 0;            ///< (p - 1) / (m + p - 1): all stages take equally long, and messages no time
};

/// The figures of a run, from the reports of its roles.
struct Summary {
  std::string strategy;
  std::uint64_t steps = 0;
  std::uint64_t skipped_steps = 0;    ///< steps whose gradients were not finite (--loss-scale)
  std::size_t tokens_per_sample = 0;  ///< the context of a text model; 0 for all other models
  double samples_per_second = 0;      ///< sum over the workers, each over the time of its own steps
  double tokens_per_second = 0;       ///< the same in tokens; 0 for models that do not read text
  double step_seconds = 0;            ///< median over steps, of the slowest worker
  double step_p10_seconds = 0;        ///< the 10th percentile of that worker's steps
  double step_p90_seconds = 0;        ///< the 90th percentile of that worker's steps
  double exposed_seconds = 0;         ///< exposed communication of a step: median, of the worker that waits most
  double mean_exposed_seconds = 0;    ///< the same as a mean over steps, which the prediction speaks of
  std::optional<double> predicted_exposed_seconds;
  std::vector<WorkerTimes> worker_times;    ///< by rank
  std::optional<PipelineSummary> pipeline;  ///< nothing if the layers are not cut into stages
  std::optional<double> server_busy_share;  ///< of the time of the steps, for which the busiest server works
  /// Processors that all processes used, on average: workers, with the servers in them, and standalone servers. Nothing
  /// if a process did not report them.
  std::optional<double> processors_used;
  double final_loss = 0;  ///< loss of the last step, mean over its samples
  std::optional<double> test_accuracy;
  std::map<std::string, double> test_own;  ///< means over rows of the model's own metrics
  std::optional<double> test_loss;         ///< mean over rows: samples, or tokens
  std::uint64_t worker_peak_bytes = 0;     ///< booked memory of the largest worker, with the server in its process
  std::uint64_t server_peak_bytes = 0;     ///< booked memory of the largest server
  std::vector<ByteCheck> bytes;
  std::uint64_t busiest_server_bytes = 0;  ///< of the whole run, by the server that moves most, the busier way
  std::vector<MemoryCheck> memory;
  SystemMemory system_memory;
  std::size_t losses = 0;                         ///< processes that were lost, and the job continued
  std::size_t begun_with = 0;                     ///< workers at the beginning
  std::size_t workers = 0;                        ///< workers at the end
  std::vector<double> recovery_seconds;           ///< for each loss: from its detection until all workers continued
  std::vector<StalenessSummary> staleness;        ///< by worker; empty if no server counted any
  std::map<std::string, std::string> processors;  ///< by worker: control::Hello::processor
  /// The strategy declares that its bits are those of `single` with as many virtual workers. Otherwise the results
  /// differ by rounding.
  bool same_bits = true;

  bool reads_text() const { return tokens_per_sample > 0; }
  /// Returns e to the power of the mean loss per token on the test split, for text models that have one.
  std::optional<double> test_perplexity() const;
  /// If true, equal bits are not promised, because kernels are chosen for the processor.
  bool mixed_processors() const;
  /// Returns whether bytes and memory are as predicted.
  bool ok() const;
};

/// Returns the content of summary.json, but for the reports of the roles.
Json summary_document(const Summary& summary);

/// Reads the reports in a run folder. Writes summary.json, and the manifest with its hosts. Throws data if a report is
/// missing or broken.
Summary summarise(const std::filesystem::path& folder, const JobOptions& job, const Invocation& invocation);

/// Returns whether the run folder has reports of workers that trained: a user's own program may only push and pull.
bool has_training(const std::filesystem::path& folder);

}  // namespace psring::cli
