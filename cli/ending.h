#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/job.h>

namespace psring::cli {

/// The newest checkpoint that a job has completed, as its manifest says; none where it has none.
std::optional<std::filesystem::path> newest_checkpoint(const JobOptions& job);

/// Returns what the line that says why a run ended adds to the cause: "; checkpoint ...; continue with: psring resume
/// RUN" where a signal interrupted it between two steps; else the run folder, the log to read and the newest
/// checkpoint. `log`: the process whose log says more, "worker-1"; "": not known. Without `resumable` it does not say
/// how to continue.
std::string ending(const std::filesystem::path& folder, const JobOptions& job,
                   const net::control::Interruption& interrupted, const std::string& log, bool resumable);

}  // namespace psring::cli
