#pragma once

#include <functional>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/options/flags.h>
#include <psring/cli/output.h>
#include <psring/common/net/frame.h>
#include <psring/common/proc/signal_watch.h>

namespace psring::cli {

/// The arguments of a subcommand's body.
struct Invocation {
  const App& app;
  std::vector<std::string> words;  ///< the command line as it was typed
  const Output& output;            ///< prints everything
};

/// Each function adds a subcommand and returns its body, which runs after parsing and returns the exit status.
using Command = std::function<int(const Invocation&)>;
Command add_train(const Flags& program);
Command add_resume(const Flags& program);
Command add_compare(const Flags& program);
Command add_report(const Flags& program);
Command add_trace(const Flags& program);
Command add_watch(const Flags& program);
Command add_step(const Flags& program);
Command add_fit(const Flags& program);
Command add_plan(const Flags& program);
Command add_keygen(const Flags& program);
Command add_doctor(const Flags& program);
Command add_coordinator(const Flags& program);
Command add_agent(const Flags& program);
Command add_manifests(const Flags& program);
Command add_memory(const Flags& program);
Command add_generate(const Flags& program);
Command add_tokenize(const Flags& program);
Command add_quantize(const Flags& program);
Command add_export(const Flags& program);
Command add_rows(const Flags& program);
Command add_check(const Flags& program);
/// The hidden subcommand in which `check` runs a student's code.
Command add_check_run(const Flags& program);
/// Adds the options of a role to `command` itself: psring-server, psring-worker, or the hidden subcommand with
/// which an agent starts the role.
Command add_role(const Flags& command, net::Role role, bool by_agent);

}  // namespace psring::cli
