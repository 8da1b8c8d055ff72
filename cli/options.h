#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/cli/app.h>
#include <psring/common/proc/job.h>
#include <psring/worker/training.h>

namespace CLI {
class App;
}

namespace psring::cli {

/// The flags that describe a job, as they were typed: what JobOptions has, before it is checked.
struct JobFlags {
  JobOptions job;
  std::optional<std::size_t> workers;
  std::optional<std::size_t> servers;
  std::optional<std::size_t> global_batch;
  std::optional<std::size_t> batch_size;
  std::optional<std::size_t> epochs;
  std::string betas;
  std::string encrypt = "auto";
  std::string trace = "off";
  std::string bucket = "25M";
  std::string overlap = "on";
};

/// Adds all of them, but --strategy, to a subcommand.
void add_job_flags(CLI::App& command, JobFlags& flags);

/// The job that the flags describe for a strategy: `single` is one process, and so on. `adapt`: flags that make no
/// sense for this strategy are left out (compare gives all strategies the same flags) instead of refused.
/// Checks what can be checked without making anything. Throws usage.
JobOptions resolve(const JobFlags& flags, const std::string& strategy, const worker::StrategyKind& kind, bool adapt,
                   bool loopback);

/// What servers make of the job: throws usage where they cannot. What workers make of it is TrainSetup.
void check_servers_part(const JobOptions& job, const App& app);

/// All that can be checked before anything runs. Throws usage or data, naming the flag or the file.
worker::TrainSetup set_up(const JobOptions& job, const App& app);

}  // namespace psring::cli
