#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/control_messages.h>
#include <psring/common/proc/signal_watch.h>

namespace psring {

/// What starts and ends the roles of one host.
struct AgentOptions {
  std::string endpoint;              ///< HOST:PORT of the coordinator
  std::filesystem::path key_file;    ///< of the job's key
  std::vector<std::string> command;  ///< starts a role, together with what is appended: see run_agent
  std::vector<int> inherited = {};   ///< descriptors that stay open in the roles
  std::filesystem::path log_folder;  ///< gets <role>-<rank>.log
  bool keep_logs = false;            ///< what is there is added to
  std::string host_id = {};
  std::optional<std::uint32_t> rank = {};  ///< a wish; the launcher's own host asks for 0
  Nanoseconds join_timeout = std::chrono::seconds(30);
  bool patient = false;                               ///< for a coordinator that is lost before it has answered
  std::function<void()> while_joining = [] {};        ///< as net::ControlLink::Options
  Nanoseconds abort_grace = std::chrono::seconds(2);  ///< for roles to say what they have to say and end
  Nanoseconds kill_grace = std::chrono::seconds(1);   ///< between SIGTERM and SIGKILL
  /// What the coordinator wants people to know.
  std::function<void(const std::string& line)> on_notice = [](const std::string&) {};
  /// Something else to look after, such as the coordinator's process, which may have been `silent` for too long; gives
  /// descriptors whose being readable is a reason to look again.
  std::function<std::vector<int>(bool silent)> tend = [](bool) { return std::vector<int>(); };
};

struct AgentResult {
  int status = 0;     ///< the job's exit status; interrupted_status where a signal ended it
  std::string cause;  ///< one line, the first cause; empty where all went well
  bool joined = true;
  bool coordinator_was_silent = false;  ///< and is not waited for any more
  /// By a signal: after a step of all workers, which have said all then, or (`failed`) at once.
  net::control::Interruption interrupted = {};
  /// The first signal that this process got; 0: none. One that came too late to end the job early leaves `interrupted`
  /// as it is.
  int signal = 0;
  bool failed = false;
  net::Peer culprit = {net::Role::coordinator, 0};  ///< whose log says more; the coordinator: nobody's
};

/// The agent's life: joins the job, starts the roles it is told to as
///   <command> role-worker|role-server --rdzv-endpoint HOST:PORT --key FILE --rank R
/// tells the coordinator how each ends, and returns with the job. On an abort the roles get a grace, then are
/// ended. The first signal ends the job after the step under way, the second request (net::StopRequests) at once. None
/// of them is left when it returns or throws. Errors of the agent itself (no coordinator, wrong key, command not found)
/// are results too. Call it from the main thread.
AgentResult run_agent(const AgentOptions& options, SignalWatch& signals, const Clock& clock);

}  // namespace psring
