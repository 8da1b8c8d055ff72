#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <psring/cli/app.h>
#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/job.h>
#include <psring/worker/training.h>

namespace CLI {
class App;
}

namespace psring::cli {

/// Of one role: they are told of each other in one list.
inline constexpr std::size_t kMostProcesses = net::kMaxListItems / 2;

/// Throws usage, naming the flag, where the value is 0 or above `most`.
void check_count(std::string_view flag, std::size_t value, std::size_t most);

/// Of a deadline, in seconds: throws usage where it is below `least`, or longer than a year, which does not fit into
/// the clock's arithmetic and means nothing.
void check_duration(std::string_view flag, double value, double least);

/// The flags that describe a job, as they were typed: what JobOptions has, before it is checked.
struct JobFlags {
  JobOptions job;
  std::optional<std::size_t> workers;
  std::optional<std::size_t> servers;
  std::optional<std::string> placement;
  std::optional<std::string> consistency;
  std::optional<std::string> optimizer_on;
  std::optional<std::size_t> global_batch;
  std::optional<std::size_t> batch_size;
  std::optional<std::size_t> epochs;
  std::string elastic;
  std::string betas;
  std::string encrypt = "auto";
  std::string trace = "off";
  std::string bucket = "25M";
  std::string tuning;
  std::string overlap = "on";
  std::string error_feedback = "on";
  std::string cuda_graphs = "on";
  std::string master_copy = "on";
  std::string reshard_after_forward = "on";
};

/// Adds all of them, but --strategy, to a subcommand.
void add_job_flags(CLI::App& command, JobFlags& flags);

/// Flags that were left out of a job, because its strategy has no use for them, and the line that would refuse each.
using LeftOut = std::map<std::string, std::string>;

/// The job that the flags describe for a strategy: `single` is one process, and so on. Flags that make no sense for
/// this strategy are refused, or, with `left_out` (compare gives all strategies the same flags), left out.
/// Checks what can be checked without making anything. Throws usage.
JobOptions resolve(const JobFlags& flags, const std::string& strategy, const worker::StrategyKind& kind,
                   LeftOut* left_out, bool loopback);

/// What servers make of the job: throws usage where they cannot. What workers make of it is TrainSetup.
void check_servers_part(const JobOptions& job, const App& app);

/// Writes into the job what it will use where it says nothing: the optimizer's defaults and, where the workers' part
/// was set up, the steps, and the epochs that these begin.
void fill_in(JobOptions& job, const App& app, const worker::TrainSetup* setup);

/// All that can be checked before anything runs. Throws usage or data, naming the flag or the file.
worker::TrainSetup set_up(const JobOptions& job, const App& app);

}  // namespace psring::cli
