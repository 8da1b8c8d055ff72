#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/proc/job.h>
#include <psring/worker/registries.h>

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
};

/// Adds `--config FILE` to a command: lines of KEY = VALUE, where a key is the name of one of its flags without the
/// dashes. What the command line gives wins. Parsing throws usage, naming the file, for a key that is no flag of the
/// command, and for sections; data where the file cannot be read.
void add_config_file(CLI::App& command);

/// Adds all of them, but --strategy, to a subcommand.
void add_job_flags(CLI::App& command, JobFlags& flags);

/// The job that the flags describe for a strategy: `single` is one process, and so on. `adapt`: flags that make no
/// sense for this strategy are left out (compare gives all strategies the same flags) instead of refused.
/// Checks what can be checked without making anything. Throws usage.
JobOptions resolve(const JobFlags& flags, const std::string& strategy, const worker::StrategyKind& kind, bool adapt,
                   bool loopback);

}  // namespace psring::cli
