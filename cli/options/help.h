#pragma once

#include <string>

namespace CLI {
class App;
}

namespace psring {
class App;
}

namespace psring::cli {

/// The group of a command's own options that --help leaves out, and --help-all shows.
inline constexpr const char* kSeldomUsed = "Seldom used";

/// Columns of the help text: the default width of a terminal.
inline constexpr std::size_t kHelpColumns = 80;

/// Lays out the help of a command and its subcommands in at most kHelpColumns. If a command has --help-all, its --help
/// shows the everyday options of a job only (options::Option::everyday).
void set_help_format(CLI::App& root);

/// Lists every registered name with its help: strategies, models, data sets, optimizers and aggregation rules, the
/// program's own among them.
std::string names_help(const App& app);

/// Lists the exit statuses with their meanings.
std::string exit_status_help();

}  // namespace psring::cli
