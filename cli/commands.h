#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/output.h>
#include <psring/common/net/frame.h>
#include <psring/common/proc/signal_watch.h>

namespace CLI {
class App;
}

namespace psring::cli {

/// The arguments of a subcommand's body.
struct Invocation {
  const App& app;
  std::vector<std::string> words;  ///< the command line as it was typed
  const Output& output;            ///< prints everything
};

/// Each function adds a subcommand and returns its body, which runs after parsing and returns the exit status.
using Command = std::function<int(const Invocation&)>;
Command add_train(CLI::App& root);
Command add_resume(CLI::App& root);
Command add_compare(CLI::App& root);
Command add_report(CLI::App& root);
Command add_step(CLI::App& root);
Command add_keygen(CLI::App& root);
Command add_doctor(CLI::App& root);
Command add_coordinator(CLI::App& root);
Command add_agent(CLI::App& root);
/// Adds the options of a role to `command` itself: psring-server, psring-worker, or the hidden subcommand with
/// which an agent starts the role.
Command add_role(CLI::App& command, net::Role role, bool by_agent);

}  // namespace psring::cli
