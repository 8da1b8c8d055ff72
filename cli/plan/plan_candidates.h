#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/step_model.h>
#include <psring/cli/app.h>
#include <psring/cli/plan/fitting.h>
#include <psring/cli/plan/plan_choices.h>
#include <psring/cli/train/job_memory.h>

namespace psring::cli {

/// The machine and the job to plan for.
struct PlanInput {
  options::Given job;  ///< the options that were given
  /// Strategies and meshes, as MeshWord reads them. Empty: kUsualStrategies, and proposed_meshes.
  std::vector<std::string> strategies;
  std::set<std::string> choose = {};  ///< of kChoosable: options that the plan may set, too
  bench::Mesh mesh;
  std::optional<bench::Fit> fit = std::nullopt;  ///< none: bench::reference_fit, without updates by workers
  bool device = false;                           ///< layers are computed by a device, not by a host's processors
  bench::PassTime pass_time;
  std::optional<double> memory_bytes = std::nullopt;  ///< of a process; rows that need more come last
};

/// The strategies of a plan if none are given.
inline constexpr const char* kUsualStrategies[] = {"ddp", "zero1", "zero2", "zero3", "ps", "ps-colocated", "ps-zero3"};

/// Bytes of the rows of tables in a step, with the frames' headers: the mean over workers, and over servers.
struct RowBytes {
  double worker_sends = 0;
  double worker_receives = 0;
  double server_receives = 0;
  double server_sends = 0;
};

/// A way to train, with its predicted step.
struct PlanRow {
  std::string label;  ///< "ps s=4", "zero3 shard-group=8", "tp:2+ddp"
  JobOptions job;
  std::shared_ptr<const worker::StrategyKind> kind;  ///< shared by all rows of a strategy
  PlanChoice choice = {};
  LeftOut left_out = {};                 ///< given options that the strategy has no use for
  std::vector<std::string> series = {};  ///< the curves of a sweep that this row is a point of
  bool inexact = false;                  ///< the plan chose compression or a narrow type
  bool tokens = false;                   ///< samples are tokens
  std::size_t hosts = 0;                 ///< workers' hosts, and those of standalone servers; each has a card
  bench::StepEstimate step;
  double samples_per_s = 0;  ///< tokens for models that read text
  double sent_bytes = 0;     ///< by the busiest card of a host in a step, one direction
  JobMemory memory = {};
  double process_bytes = 0;  ///< booked by the fullest process
  bool fits = true;          ///< into PlanInput::memory_bytes

  RowBytes row_bytes() const;
  double per_host() const { return samples_per_s / static_cast<double>(hosts); }
};

struct PlanRows {
  std::vector<PlanRow> rows = {};  ///< best first
  /// Why a strategy, or an option of --choose, has no row.
  std::vector<std::string> left_out = {};
  bool tables = false;           ///< the model has tables: steps are predicted without the work on their rows
  bool reference_costs = false;  ///< messages cost what they do on the reference machine (bench::reference_fit)
};

/// The meshes that are worth a row: --tensor 1, 2, 4 or 8 within a host, --pipeline 1, 2, 4 or 8, with zero1
/// along the data axis. None that the model's layers do not allow, and none if a mesh was given.
std::vector<std::string> proposed_meshes(const PlanInput& input, const App& app);

/// The processes that cut each unit of a job.
std::size_t owners_of(const JobOptions& job, const worker::StrategyKind& kind, const bench::Mesh& mesh);

/// Evaluates all strategies with the options that matter to each. For each number of servers, shard group, compression
/// and precision, one row remains: the fastest that fits into memory. If none fits, activation checkpointing and
/// micro-batches are tried. Throws usage if no row is left.
PlanRows plan_rows(const PlanInput& input, const App& app);

}  // namespace psring::cli
