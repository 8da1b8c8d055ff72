#include <memory>
#include <optional>

#include <CLI/CLI.hpp>

#include <psring/cli/commands.h>
#include <psring/cli/options.h>
#include <psring/common/base/error.h>
#include <psring/common/proc/environment.h>
#include <psring/common/proc/role.h>
#include <psring/server/role.h>
#include <psring/worker/role.h>

namespace psring::cli {

Command add_role(CLI::App& command, net::Role role, bool by_agent) {
  auto options = std::make_shared<RoleOptions>();  // shared: the parser fills it in, the command reads it
  const auto endpoint = command.add_option("--rdzv-endpoint", options->endpoint, "HOST:PORT of the job's coordinator");
  if (const auto master = master_endpoint()) {
    options->endpoint = *master;
  } else {
    endpoint->required();
  }
  command.add_option("--key", options->key_file, "the job's key file")->required();
  command.add_option("--rank", options->rank, "which of its kind it wants to be");
  command.add_option(
      "--bind", options->bind,
      "address, interface or network (CIDR) that others reach it at (the address that routes to the coordinator)");
  command.add_option("--join-timeout", options->join_timeout, "seconds for the coordinator to answer")
      ->capture_default_str();
  command.add_flag("--patient", options->patient)->group("");
  if (!options->rank && role == net::Role::worker) options->rank = environment_number("RANK");
  command.footer(
      fmt::format("Where --rdzv-endpoint is missing, MASTER_ADDR and MASTER_PORT of the environment are taken{}.",
                  role == net::Role::worker ? "; where --rank is, RANK" : ""));
  return [options, role, by_agent](const Invocation& invocation) {
    check_duration("--join-timeout", options->join_timeout, 0.1);
    net::control::Interruption how;
    if (role == net::Role::server) {
      how = server::run_server(*options, invocation.app.aggregators(), invocation.app.optimizers());
    } else {
      // Only here do server and worker meet: one in the other's process.
      const auto run_server = [&](Membership& member) {
        server::run_server(member, invocation.app.aggregators(), invocation.app.optimizers());
      };
      how = worker::run_worker(*options, invocation.app.worker_registries(), invocation.app.optimizers(), run_server);
    }
    if (by_agent || how.signal == 0) return 0;  // of an agent's roles, another status is a loss
    invocation.output.settle();
    fmt::print(stderr, "{}interrupted {}\n", kErrorPrefix, net::control::describe(how));
    return interrupted_status(how.signal);
  };
}

}  // namespace psring::cli
