#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <psring/cli/options/config_file.h>
#include <psring/cli/options/help.h>
#include <psring/cli/options/parse.h>
#include <psring/cli/options/words.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/proc/environment.h>

namespace psring::cli {
namespace {

constexpr const char* kConfig = "--config";

/// Refuses numbers that the parser would take: -1 as a very large number, and "3.5 apples" as 3.5. Refuses an empty
/// value or positional argument, too, unless it makes sense: a script's unset variable becomes "".
void check_values(CLI::App& command) {
  for (CLI::Option* option : command.get_options({})) {
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !may_be_empty(*option))
      option->check([](const std::string& text) { return text.empty() ? "expected a value, got ''" : ""; });
    if (type == "UINT")
      option->check([](const std::string& text) {
        return read_number<std::uint64_t>(text) ? "" : fmt::format("expected a whole number, got '{}'", text);
      });
    if (type == "FLOAT")
      option->check([](const std::string& text) {
        return read_number<double>(text) ? "" : fmt::format("expected a number, got '{}'", text);
      });
  }
  for (CLI::App* subcommand : command.get_subcommands({})) check_values(*subcommand);
}

std::string visible_names(const CLI::App& root) {
  std::string names;
  for (const CLI::App* command : root.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

/// Returns the command that the words name; `root` if there are no subcommands, or if the words only ask for help.
CLI::App& command_of(CLI::App& root, const std::vector<std::string>& words) {
  const auto commands = root.get_subcommands({});
  if (commands.empty()) return root;
  if (words.size() < 2) fail(ErrorKind::usage, "expected a command: {}; --help says more", visible_names(root));
  for (CLI::App* command : commands)
    if (command->get_name() == words[1]) return *command;
  if (!words[1].starts_with('-'))
    fail(ErrorKind::usage, "unknown command '{}'; known: {}", words[1], visible_names(root));
  return root;
}

/// Returns the value of --config; "" if it is not given.
std::string config_file(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == kConfig && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(std::string(kConfig) + "=")) return words[i].substr(std::string_view(kConfig).size() + 1);
  }
  return "";
}

bool is_given(const std::vector<std::string>& words, const std::string& option) {
  return std::any_of(words.begin() + 1, words.end(),
                     [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

/// The words that --config adds to the command line.
struct ConfigWords {
  std::string file;
  std::vector<std::string> words;
  std::map<std::string, std::size_t> lines;  ///< by option
};

/// The option of a key. A job's file names one strategy, which commands that compare strategies take for their list.
std::string option_of(const CLI::App& command, const std::string& key) {
  const bool compares = command.get_option_no_throw("--strategy") == nullptr;
  return key == "strategy" && compares ? "--strategies" : "--" + key;
}

ConfigWords read_config(const CLI::App& command, const std::string& file, const std::vector<std::string>& words) {
  ConfigWords added{.file = file, .words = {}, .lines = {}};
  for (const ConfigEntry& entry : read_config_file(file)) {
    const std::string option = option_of(command, entry.key);
    if (option == kConfig || option.starts_with("--help") || command.get_option_no_throw(option) == nullptr)
      fail(ErrorKind::usage, "{}: unknown key '{}'", config_line(file, entry.line), entry.key);
    if (added.lines.contains(option))
      fail(ErrorKind::usage, "{}: key '{}' is that of line {} by another name", config_line(file, entry.line),
           entry.key, added.lines[option]);
    if (is_given(words, option)) continue;
    added.words.push_back(fmt::format("{}={}", option, entry.value));
    added.lines[option] = entry.line;
  }
  return added;
}

/// Adds the file's line to an error that begins with an option of the file.
Error with_source(const Error& error, const ConfigWords& added) {
  const std::string_view text = error.what();
  const auto found = added.lines.find(std::string(text.substr(0, text.find_first_of(" :"))));
  return found == added.lines.end() ? error : error.with_context(config_line(added.file, found->second));
}

/// Turns an error of the parser into psring's own wording.
Error explain(const CLI::ParseError& error) {
  const std::string line = error.what();
  const std::size_t colon = std::min(line.find(": "), line.size());
  const std::string rest = line.substr(std::min(colon + 2, line.size()));
  std::string text = line;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    // The parser lists unknown words from the back, so the first one is last.
    text = fmt::format("unknown argument '{}'; --help lists all options", rest.substr(rest.rfind(' ') + 1));
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    text = line.substr(0, colon) + (line.ends_with("missing") ? ": expected a value" : ": given twice");
  } else if (line.starts_with("Could not convert: ")) {
    const std::size_t equals = std::min(rest.find(" = "), rest.size());
    const std::string value = rest.substr(std::min(equals + 3, rest.size()));
    const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    text = fmt::format("{}: {}'{}'{}", rest.substr(0, equals), is_number ? "" : "cannot be ", value,
                       is_number ? " is too large" : "");
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Error(ErrorKind::usage, text);
}

/// Parses the words. Returns the exit status if there is nothing to run.
std::optional<int> parse(CLI::App& root, const std::vector<std::string>& words) {
  try {
    root.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // the parser expects them in reverse order
  } catch (const CLI::Success& success) {
    return root.exit(success);
  } catch (const CLI::ParseError& error) {
    throw explain(error);
  }
  return std::nullopt;
}

}  // namespace

void add_config(const Flags& command) {
  // The file is read before the parser runs; the parser only has to know the option.
  command
      .add_text(
          kConfig, [](const std::string&) {},
          "a file of KEY = VALUE lines with the same names; the command line takes precedence")
      .show_value("FILE");
}

void add_endpoint(const Flags& command, std::string& endpoint) {
  Flag flag = command.add("--rdzv-endpoint", endpoint, "HOST:PORT of the coordinator of the job");
  if (const auto master = master_endpoint()) {
    endpoint = *master;
  } else {
    flag.require();
  }
}

CommandLine::CommandLine(const std::string& help, const std::string& version)
    : root_(std::make_unique<CLI::App>(help)) {
  if (!version.empty()) root_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

Flags CommandLine::program() const { return Flags(*root_); }

std::string CommandLine::typed_command() const {
  const auto typed = root_->get_subcommands();
  return typed.empty() ? "" : typed.front()->get_name();
}

int CommandLine::run(const std::vector<std::string>& words, const std::function<int()>& body) {
  CLI::App& root = *root_;
  if (!root.get_subcommands({}).empty()) root.require_subcommand(1);
  set_help_format(root);
  CLI::App& command = command_of(root, words);
  const bool is_named = &command != &root;
  std::vector<std::string> all = checked_words(command, {words.begin() + (is_named ? 2 : 1), words.end()});
  if (is_named) all.insert(all.begin(), words[1]);
  ConfigWords added;
  if (const std::string file = config_file(words); !file.empty() && command.get_option_no_throw(kConfig) != nullptr)
    added = read_config(command, file, words);
  check_values(root);
  root.name(std::filesystem::path(words.front()).filename().string());  // the parser would take the name from argv
  try {
    const std::vector<std::string> of_file = checked_words(command, added.words);
    all.insert(all.end(), of_file.begin(), of_file.end());
    const auto status = parse(root, all);
    return status ? *status : body();
  } catch (const Error& error) {
    throw with_source(error, added);
  }
}

}  // namespace psring::cli
