#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/options/flags.h>

namespace psring::cli {

/// Adds --config: a file as config_file.h reads it, whose keys are the command's long options without their dashes.
/// A command that has --strategies, and no --strategy, takes the key "strategy" for it.
/// An option on the command line takes precedence over the file.
void add_config(const Flags& command);

/// Adds --rdzv-endpoint, the coordinator of a job, which may be left out if the environment names a master.
void add_endpoint(const Flags& command, std::string& endpoint);

/// The command line of a program: its options, and its subcommands with theirs.
class CommandLine {
 public:
  /// `version` is the line that --version prints. A program has --version if the line is not empty.
  explicit CommandLine(const std::string& help, const std::string& version = "");
  ~CommandLine();

  /// The options of the program itself, which adds the subcommands.
  Flags program() const;

  /// Parses the words of the command line, and those that --config adds, into the options of the program and of the
  /// subcommand that they name. Calls `body` and returns its exit status; returns 0 after --help and --version, without
  /// calling it. Throws usage: one line that names the option. An error, of `body` too, that begins with an option of
  /// the file names the file and the line.
  int run(const std::vector<std::string>& words, const std::function<int()>& body);

  /// The name of the subcommand that was typed; "" if the program has none. Parsing comes first.
  std::string typed_command() const;

 private:
  std::unique_ptr<CLI::App> root_;
};

}  // namespace psring::cli
