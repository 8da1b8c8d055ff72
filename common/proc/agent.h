#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/control/control_messages.h>
#include <psring/common/proc/signal_watch.h>

namespace psring {

/// How an agent starts and ends the roles of its host.
struct AgentOptions {
  std::string endpoint;              ///< HOST:PORT of the coordinator
  std::filesystem::path key_file;    ///< of the job's key
  std::vector<std::string> command;  ///< starts a role; run_agent appends the role's arguments
  std::vector<int> inherited = {};   ///< descriptors that stay open in the roles
  std::filesystem::path log_folder;  ///< gets <role>-<rank>.log
  bool keep_logs = false;            ///< append to existing logs
  std::string host_id = {};
  std::optional<std::uint32_t> rank = {};  ///< the rank to ask for; the launcher's own host asks for 0
  Nanoseconds join_timeout = std::chrono::seconds(30);
  bool patient = false;                               ///< see net::ControlLink::Options
  std::function<void()> while_joining = [] {};        ///< see net::ControlLink::Options
  Nanoseconds abort_grace = std::chrono::seconds(2);  ///< for roles to report their errors and exit
  Nanoseconds kill_grace = std::chrono::seconds(1);   ///< between SIGTERM and SIGKILL
  /// Shows people a line of the coordinator.
  std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
  /// Looks after another process, such as the coordinator's, in each round of the agent's loop. `silent`: the
  /// coordinator is silent. Returns the descriptors whose readability starts the next round.
  std::function<std::vector<int>(bool silent)> tend = [](bool) { return std::vector<int>(); };
};

struct AgentResult {
  int status = 0;     ///< the job's exit status; interrupted_status if a signal ended it
  std::string cause;  ///< the first cause, in one line; empty if the job succeeded
  bool joined = true;
  bool coordinator_was_silent = false;  ///< the coordinator was silent, and did not come back in time
  bool coordinator_was_lost = false;    ///< the coordinator went without a word
  /// How a signal ended the job: after a step of all workers, or (`failed`) at once.
  net::control::Interruption interrupted = {};
  /// The first signal that this process got; 0: none. `interrupted` does not change if the signal came too late to end
  /// the job early.
  int signal = 0;
  bool failed = false;
  bool more = false;                                ///< another job follows at the endpoint, and this agent may join it
  net::Peer culprit = {net::Role::coordinator, 0};  ///< the role whose log says more; the coordinator: no log does
};

/// Runs an agent: joins the job, starts the roles that the coordinator orders, as
///   <command> role-worker|role-server --rdzv-endpoint HOST:PORT --key FILE --rank R
/// tells the coordinator how each role ends, and returns when the job ends. After an abort the roles get a grace
/// period, and are then killed. The first signal ends the job after the current step, the second request
/// (net::StopRequests) at once. No role runs when this returns or throws. Errors of the agent itself (no coordinator,
/// wrong key, command not found) are results, too. Call it from the main thread.
AgentResult run_agent(const AgentOptions& options, SignalWatch& signals, const Clock& clock);

}  // namespace psring
