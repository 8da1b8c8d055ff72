#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include <psring/cli/commands.h>
#include <psring/cli/options.h>
#include <psring/cli/parse.h>
#include <psring/common/base/error.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/environment.h>

namespace psring::cli {

Command add_agent(CLI::App& root) {
  CLI::App* command = root.add_subcommand("agent", "start a job's roles on this host, as its coordinator says");
  auto options = std::make_shared<AgentOptions>();  // shared: the parser fills it in, the command reads it
  const auto endpoint = command->add_option("--rdzv-endpoint", options->endpoint, "HOST:PORT of the job's coordinator");
  if (const auto master = master_endpoint()) {
    options->endpoint = *master;
  } else {
    endpoint->required();
  }
  command->add_option("--key", options->key_file, "the job's key file")->required();
  options->log_folder = "logs";
  command->add_option("--logs", options->log_folder, "where the roles' logs go")->capture_default_str();
  auto join_timeout = std::make_shared<double>(30);
  command->add_option("--join-timeout", *join_timeout, "seconds for the coordinator to answer")->capture_default_str();
  add_config(*command);
  command->footer("Where --rdzv-endpoint is missing, MASTER_ADDR and MASTER_PORT of the environment are taken.");
  return [options, join_timeout](const Invocation& invocation) {
    check_duration("--join-timeout", *join_timeout, 0.1);
    options->join_timeout = from_seconds(*join_timeout);
    SignalWatch signals;
    const SystemClock clock;
    options->command = {std::filesystem::read_symlink("/proc/self/exe").string()};
    options->host_id = net::host_id();
    options->key_file = std::filesystem::absolute(options->key_file);
    const AgentResult result = run_agent(*options, signals, clock);
    invocation.output.settle();
    if (!result.cause.empty()) fmt::print(stderr, "{}{}\n", kErrorPrefix, result.cause);
    return result.status;
  };
}

}  // namespace psring::cli
