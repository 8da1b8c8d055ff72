#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/job.h>

namespace psring::cli {

/// Returns the newest checkpoint that a job has completed, according to its manifest; nothing if there is none.
std::optional<std::filesystem::path> newest_checkpoint(const JobOptions& job);

/// Returns the text after the cause in the line that says why a run ended. If a signal interrupted the run between two
/// steps: "; checkpoint ...; continue with: psring resume RUN". Otherwise: the run folder, the log to read and the
/// newest checkpoint. `log`: the process with the most useful log, such as "worker-1"; "" if not known. Without
/// `resumable` the text does not mention psring resume.
std::string ending(const std::filesystem::path& folder, const JobOptions& job,
                   const net::control::Interruption& interrupted, const std::string& log, bool resumable);

/// Removes what processes that were killed have left half written in a run folder: unfinished checkpoints of the run,
/// and files under their temporary names. REQUIRES: none of the job's processes runs any more.
void remove_unfinished(const std::filesystem::path& folder, const JobOptions& job);

}  // namespace psring::cli
