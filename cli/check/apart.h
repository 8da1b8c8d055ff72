#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/common/proc/signal_watch.h>

namespace psring::cli {

/// Thrown when a signal asked this process to end.
struct Interrupted {
  int signal = 0;
};

/// How a command ended that ran apart.
struct Apart {
  std::optional<ProcessExit> exit;  ///< nothing: its time has passed
  std::string printed;              ///< its output; of a long one, the beginning and the end
};

/// Runs a command in a process of its own for `limit` at most. Nothing that it started runs after the return, nor after
/// an exception. Its output goes to `folder`/<name>.log. Throws data if the command cannot be executed, Interrupted if
/// a signal came.
Apart run_apart(const std::string& name, std::vector<std::string> command, const std::filesystem::path& folder,
                Nanoseconds limit, SignalWatch& signals);

/// Lets this process print at most kMostPrinted bytes, errors included, before SIGXFSZ ends it. REQUIRES: run_apart
/// started it.
void limit_output();

constexpr std::size_t kMostPrinted = 16 << 20;

}  // namespace psring::cli
