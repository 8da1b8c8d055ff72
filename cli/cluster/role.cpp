#include <memory>

#include <psring/cli/commands.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/environment.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/role.h>
#include <psring/server/role.h>
#include <psring/worker/role.h>

namespace psring::cli {

Command add_role(const Flags& command, net::Role role, bool by_agent) {
  auto options = std::make_shared<RoleOptions>();  // shared: the parser fills it in, the command reads it
  add_endpoint(command, options->endpoint);
  command.add("--key", options->key_file, "key file of the job").show_value("FILE").require();
  command.add("--rank", options->rank, "rank to ask for (the coordinator assigns a rank)");
  command.add("--bind", options->bind,
              "address, interface or network (CIDR) at which other processes reach this process (the address "
              "that routes to the coordinator)");
  command.add("--join-timeout", options->join_timeout, "seconds to wait for the coordinator's answer").show_default();
  command.add_switch("--patient", options->patient).hide();
  command.add_switch("--leave-on-signal", options->leaves,
                     "a signal ends this process alone, and the job treats it as lost (a signal ends the job)");
  add_config(command);
  command.add_footer(
      fmt::format("Without --rdzv-endpoint, MASTER_ADDR and MASTER_PORT of the environment are the endpoint{}.",
                  role == net::Role::worker ? "; without --rank, RANK is the rank" : ""));
  return [options, role, by_agent](const Invocation& invocation) {
    options::check_duration("--join-timeout", options->join_timeout, 0.1);
    if (!options->rank && role == net::Role::worker) options->rank = environment_number("RANK");
    net::control::Interruption interruption;
    if (role == net::Role::server) {
      interruption = server::run_server(*options, invocation.app.aggregators(), invocation.app.optimizers());
    } else {
      // Colocated: the server runs in the worker's process. Only here does a server meet a worker.
      const auto run_server = [&](Membership& member) {
        server::run_server(member, invocation.app.aggregators(), invocation.app.optimizers());
      };
      interruption =
          worker::run_worker(*options, invocation.app.worker_registries(), invocation.app.optimizers(), run_server);
    }
    if (by_agent || interruption.signal == 0) return 0;  // an agent would treat any other status as a loss
    invocation.output.settle();
    out::error("interrupted " + net::control::describe(interruption));
    return interrupted_status(interruption.signal);
  };
}

}  // namespace psring::cli
