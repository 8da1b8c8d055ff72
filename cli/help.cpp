#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <psring/cli/app.h>
#include <psring/cli/help.h>
#include <psring/cli/text_table.h>

namespace psring::cli {
namespace {

constexpr std::size_t kNameColumns = 28;  // of an option or a command

/// A name in its column, with the text beside it; a longer name has a line of its own.
std::string entry(const std::string& name, const std::string& text, std::size_t column) {
  const std::string left = "  " + name;
  std::string lines = left + (columns_of(left) < column ? std::string(column - columns_of(left), ' ')
                                                        : "\n" + std::string(column, ' '));
  std::istringstream in(text.empty() ? "" : wrapped(text, kHelpColumns - column, 0));
  std::string line;
  for (bool first = true; std::getline(in, line); first = false)
    lines += (first ? "" : "\n" + std::string(column, ' ')) + line;
  lines.erase(lines.find_last_not_of(" \n") + 1);
  return lines + "\n";
}

/// The parser's formatter, with texts cut into lines.
class Columns final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option),
                 kNameColumns);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description(), kNameColumns);
  }
  std::string make_footer(const CLI::App* command) const override {
    std::istringstream in(command->get_footer());
    std::string text;
    for (std::string line; std::getline(in, line);) text += line.empty() ? "\n" : wrapped(line, kHelpColumns, 0);
    return text;
  }
  std::string make_description(const CLI::App* command) const override {
    return command->get_description().empty() ? "" : wrapped(command->get_description(), kHelpColumns, 0);
  }
};

/// A list of names under a title: "NAME  HELP" lines, as a registry has them.
std::string list(const char* title, const std::string& lines) {
  constexpr std::size_t kColumn = 18;
  std::string text = fmt::format("{}:\n", title);
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::size_t help = std::min(line.find_first_not_of(' ', end), line.size());
    text += entry(line.substr(0, end), line.substr(help), kColumn);
  }
  return text;
}

}  // namespace

void set_help_format(CLI::App& root) {
  const auto format = std::make_shared<Columns>();  // shared: the parser keeps it in every command
  root.formatter(format);
  for (CLI::App* command : root.get_subcommands({})) command->formatter(format);
}

std::string names_help(const App& app) {
  const worker::Registries& workers = app.worker_registries();
  return list("Strategies (--strategy, --strategies)", workers.strategies.help()) + "\n" +
         list("Models (--model)", workers.models.help()) + "\n" + list("Data sets (--data)", workers.datasets.help()) +
         "\n" + list("Optimizers (--optimizer)", app.optimizers().help()) + "\n" +
         list("Aggregation rules of servers (--aggregate)", app.aggregators().help());
}

std::string exit_status_help() {
  return "Exit status:\n"
         "  0   done\n"
         "  1   a defect of psring, or an exception of a part that the program adds\n"
         "  2   a flag or an argument is wrong\n"
         "  3   bad data, file or configuration; a loss that is not finite\n"
         "  4   a process of the job was lost, or did not answer in time\n"
         "  5   a process does not hold the job's key\n"
         "  6   bytes, memory or bits are not as predicted\n"
         "  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM\n";
}

void add_footer(CLI::App& command, const std::string& part) {
  const std::string own = command.get_footer();
  command.footer(own.empty() ? part : own + (own.ends_with('\n') ? "\n" : "\n\n") + part);
}

}  // namespace psring::cli
