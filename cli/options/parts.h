#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include <psring/common/proc/job.h>

namespace psring::cli {

/// Returns the job of a run folder from its run.json, with checkpoints at the folder's current place. Throws data if
/// the folder holds no run.
JobOptions job_of_run(const std::filesystem::path& folder);

/// The launch options of a run besides the job; kept in run.json.
struct LaunchRecord {
  std::size_t nodes = 1;
  std::string listen = "127.0.0.1:0";
  std::string key_file = {};   ///< "" if a key was made for this job alone
  std::string slurm_job = {};  ///< the number of the job of Slurm that ran it last; "": it was none
  bool same_build = false;     ///< --same-build
};
void record_launch(const std::filesystem::path& folder, const LaunchRecord& record);
LaunchRecord launch_of_run(const std::filesystem::path& folder);

/// The processors that other programs used during a run, also kept in run.json; 0 if it does not contain them.
void record_other_load(const std::filesystem::path& folder, std::optional<double> processors);
std::optional<double> other_load_of_run(const std::filesystem::path& folder);

/// Prepares a run's next part: moves the previous part's own files (run.json, reports, summary) to parts/<number>.
/// Metrics, logs and checkpoints continue. Returns the next part's number.
std::size_t begin_next_part(const std::filesystem::path& folder);

enum class Damaged { leave, set_aside };

/// Returns the newest checkpoint that the run itself saved and that can be read completely; if the run completed none,
/// the checkpoint that it began with. Prints a line for each newer checkpoint that is damaged. With `set_aside`, a
/// damaged checkpoint is renamed to step-<K>.damaged, so that the run's next part can save that step again. Throws data
/// if there is no checkpoint, or if one cannot be opened.
std::filesystem::path newest_whole_checkpoint(const JobOptions& job, Damaged damaged);

/// Returns the checkpoint at `given`, or the newest one in that run folder or folder of checkpoints, after reading and
/// checking all its bytes. Throws data if there is none.
std::filesystem::path checkpoint_at(const std::filesystem::path& given);

}  // namespace psring::cli
