#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace psring::cli {

/// Adds --config: a file as config_file.h reads it, whose keys are the command's long options without their dashes.
/// An option on the command line takes precedence over the file.
void add_config(CLI::App& command);

/// Parses the words of the command line, and those that --config adds, into the options of `root` and of the
/// subcommand that they name. Calls `body` and returns its exit status; returns 0 after --help and --version, without
/// calling it. Throws usage: one line that names the option. An error, of `body` too, that begins with an option of the
/// file names the file and the line.
int parse_and_run(CLI::App& root, const std::vector<std::string>& words, const std::function<int()>& body);

}  // namespace psring::cli
