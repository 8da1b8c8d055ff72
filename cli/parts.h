#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include <psring/common/proc/job.h>

namespace psring::cli {

/// The job of a run folder, as its run.json says; checkpoints are where the folder is now. Throws data where there is
/// no run.
JobOptions job_of_run(const std::filesystem::path& folder);

/// How a run's launcher was called, beside the job: kept in run.json.
struct LaunchRecord {
  std::size_t nodes = 1;
  std::string listen = "127.0.0.1:0";
  std::string key_file;  ///< "": one was made for the job alone
};
void record_launch(const std::filesystem::path& folder, const LaunchRecord& record);
LaunchRecord launch_of_run(const std::filesystem::path& folder);

/// The processors that other programs took during a run, also kept in run.json; 0 if it does not say.
void record_other_load(const std::filesystem::path& folder, double processors);
double other_load_of_run(const std::filesystem::path& folder);

/// Makes room for a run's next part: what the part before wrote of itself (run.json, reports, summary) lies in
/// parts/<number> then; metrics, logs and checkpoints go on. Returns the next part's number.
std::size_t begin_next_part(const std::filesystem::path& folder);

enum class Damaged { leave, set_aside };

/// The newest checkpoint that the run itself saved and that can be read to the last byte. A newer one that is damaged
/// gets a line, and with `set_aside`, which the run's next part needs to save that step again, the name
/// step-<K>.damaged. The checkpoint that the run began with, if it completed none. Throws data if there is none at all,
/// or one cannot be opened.
std::filesystem::path newest_whole_checkpoint(const JobOptions& job, Damaged damaged);

}  // namespace psring::cli
