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

/// What a subcommand works with.
struct Invocation {
  const App& app;
  std::vector<std::string> words;  ///< the command line as it was typed
  const Output& output;            ///< through which all is printed
};

/// Adds a subcommand; what it returns runs it, and gives the exit status, once the line is parsed.
using Command = std::function<int(const Invocation&)>;
Command add_train(CLI::App& root);
Command add_resume(CLI::App& root);
Command add_compare(CLI::App& root);
Command add_keygen(CLI::App& root);
Command add_doctor(CLI::App& root);
Command add_coordinator(CLI::App& root);
Command add_agent(CLI::App& root);
/// The roles, for `command` itself: psring-server, psring-worker, and the hidden subcommands by which agents
/// start them.
Command add_role(CLI::App& command, net::Role role, bool by_agent);

}  // namespace psring::cli
