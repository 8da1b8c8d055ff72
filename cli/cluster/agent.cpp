#include <filesystem>
#include <memory>

#include <psring/cli/commands.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/options/check.h>

namespace psring::cli {

Command add_agent(const Flags& program) {
  const Flags command = program.add_command("agent", "start the roles of a job on this host, for its coordinator");
  auto options = std::make_shared<AgentOptions>();  // shared: the parser fills it in, the command reads it
  add_endpoint(command, options->endpoint);
  command.add("--key", options->key_file, "key file of the job").show_value("FILE").require();
  options->log_folder = "logs";
  command.add("--logs", options->log_folder, "folder of the logs of the roles").show_value("DIR").show_default();
  auto join_timeout = std::make_shared<double>(30);
  command.add("--join-timeout", *join_timeout, "seconds to wait for the coordinator's answer").show_default();
  add_config(command);
  command.add_footer("Without --rdzv-endpoint, MASTER_ADDR and MASTER_PORT of the environment are the endpoint.");
  return [options, join_timeout](const Invocation& invocation) {
    options::check_duration("--join-timeout", *join_timeout, 0.1);
    options->join_timeout = from_seconds(*join_timeout);
    SignalWatch signals;
    const SystemClock clock;
    options->command = {std::filesystem::read_symlink("/proc/self/exe").string()};
    options->host_id = net::host_id();
    options->key_file = std::filesystem::absolute(options->key_file);
    AgentResult result = run_agent(*options, signals, clock);
    while (result.more) {  // jobs of a comparison, which goes on after a row whose model is not finite any more
      options->patient = options->keep_logs = true;
      result = run_agent(*options, signals, clock);
      if (!result.joined && !result.cause.empty()) result.cause = "between two jobs: " + result.cause;
    }
    invocation.output.settle();
    if (!result.cause.empty()) out::error(result.cause);
    return result.status;
  };
}

}  // namespace psring::cli
