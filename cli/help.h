#pragma once

#include <string>

namespace CLI {
class App;
}

namespace psring {
class App;
}

namespace psring::cli {

/// Columns of the help text, as of a terminal that nobody made wider.
inline constexpr std::size_t kHelpColumns = 80;

/// Lays out the help of a command and its subcommands in at most kHelpColumns.
void set_help_format(CLI::App& root);

/// Every registered name with its help: strategies, models, data sets, optimizers, aggregation rules; those that the
/// program adds as well.
std::string names_help(const App& app);

/// Says what each exit status means.
std::string exit_status_help();

/// Appends a part to the text that stands below a command's options.
void add_footer(CLI::App& command, const std::string& part);

}  // namespace psring::cli
