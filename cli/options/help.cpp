#include <memory>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <psring/cli/app.h>
#include <psring/cli/options/help.h>
#include <psring/cli/text_table.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {
namespace {

constexpr std::size_t kNameColumns = 28;  // the width of the column of names

/// Returns a name in its column with the text beside it. A name that is too long has a line of its own.
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

/// The parser's formatter, which wraps texts, and hides the options that are seldom used.
class Columns final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option),
                 kNameColumns);
  }
  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(command) + make_usage(command, std::move(name)) + make_positionals(command) +
           shown_groups(command, mode) + make_subcommands(command, CLI::AppFormatMode::Normal) + "\n" +
           make_footer(command);
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

 private:
  std::string shown_groups(const CLI::App* command, CLI::AppFormatMode mode) const {
    std::string text;
    for (const std::string& group : command->get_groups()) {
      const auto shown = command->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional() && is_shown(command, option, mode);
      });
      if (!group.empty() && !shown.empty()) text += make_group(group, false, shown);
    }
    return text;
  }
  static bool is_shown(const CLI::App* command, const CLI::Option* option, CLI::AppFormatMode mode) {
    if (command->get_help_all_ptr() == nullptr || mode == CLI::AppFormatMode::All) return true;
    if (option->get_group() == kSeldomUsed) return false;
    const options::Option* const row = options::find(option->get_single_name());
    return row == nullptr || row->everyday;
  }
};

/// Returns the "NAME  HELP" lines of a registry as a list under a title.
std::string list(const char* title, const std::string& lines) {
  constexpr std::size_t kColumn = 20;
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
         list("Rules of tables' rows (--table-optimizer)", app.optimizers().rows.help()) + "\n" +
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
         "  129, 130, 131, 138, 143  ended by SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGTERM\n"
         "  141 ended because the reader of its output has left (SIGPIPE)\n";
}

}  // namespace psring::cli
