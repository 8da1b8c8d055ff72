#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace psring::cli {

/// Adds --config: a file of KEY = VALUE lines (TOML without tables), whose keys are the command's long options without
/// their dashes. What stands on the command line, too, is taken from there.
void add_config(CLI::App& command);

/// Parses the words of the command line, with what --config adds to them, into the options of `root` and of
/// the one subcommand that they name. Returns the exit status where all is said with that (--help, --version).
/// Throws usage: one line that names the option, or the file and its key.
std::optional<int> parse(CLI::App& root, const std::vector<std::string>& words);

}  // namespace psring::cli
