#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace psring::cli {

/// Adds --config: a file as config_file.h reads it, whose keys are the command's long options without their dashes.
/// What stands on the command line, too, is taken from there.
void add_config(CLI::App& command);

/// Parses the words of the command line, with what --config adds to them, into the options of `root` and of the one
/// subcommand that they name, and calls `body`; returns its exit status, or 0 where all is said with the options
/// (--help, --version). Throws usage: one line that names the option. An error, of `body` too, that begins with an
/// option that the file gave, names the file and the line.
int parse_and_run(CLI::App& root, const std::vector<std::string>& words, const std::function<int()>& body);

}  // namespace psring::cli
