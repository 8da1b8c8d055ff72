#include <vector>

#include <fmt/format.h>

#include <psring/cli/train/ending.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::cli {

namespace fs = std::filesystem;

namespace {

fs::path log_file(const fs::path& folder, const std::string& process) {
  const fs::path logs = folder / "logs";
  const fs::path file = logs / (process + ".log");
  std::error_code ignored;
  return !process.empty() && fs::exists(file, ignored) ? file : logs;  // a role on another host has its log there
}

}  // namespace

void remove_unfinished(const fs::path& folder, const JobOptions& job) {
  std::error_code ignored;
  for (const fs::path& place : {folder, folder / "reports", folder / "live"}) {
    std::vector<fs::path> left;
    for (const auto& entry : fs::directory_iterator(place, ignored))
      if (entry.path().extension() == ".partial" && entry.is_regular_file(ignored)) left.push_back(entry.path());
    for (const fs::path& file : left) fs::remove(file, ignored);
  }
  if (job.checkpoint_every == 0 || !fs::exists(job.checkpoint_folder(), ignored)) return;
  try {
    optim::CheckpointFolder(job.checkpoint_folder(), job.run_id).clear(optim::CheckpointFolder::Leftovers::own);
  } catch (const Error&) {  // why the job failed is said; the next part clears the folder
  }
}

std::optional<fs::path> newest_checkpoint(const JobOptions& job) {
  if (job.checkpoint_every == 0) return std::nullopt;
  const auto newest = optim::CheckpointFolder(job.checkpoint_folder(), job.run_id).newest_own();
  if (!newest) return std::nullopt;
  return newest->path;
}

std::string ending(const fs::path& folder, const JobOptions& job, const net::control::Interruption& interrupted,
                   const std::string& log, bool resumable) {
  const bool between_steps = interrupted.signal != 0 && interrupted.last > 0;
  const auto checkpoint = newest_checkpoint(job);
  std::string text;
  if (!between_steps) text += fmt::format("; run folder {}", folder.string());
  if (interrupted.signal == 0) text += fmt::format("; log {}", log_file(folder, log).string());
  if (checkpoint)
    return text + fmt::format("; {} {}", between_steps ? "checkpoint" : "newest checkpoint", checkpoint->string()) +
           (resumable ? fmt::format("; continue with: psring resume {}", folder.string()) : "");
  text += job.checkpoint_every == 0 ? "; no checkpoint, as --checkpoint-every was not given" : "; no checkpoint yet";
  return between_steps ? text + fmt::format("; run folder {}", folder.string()) : text;
}

}  // namespace psring::cli
