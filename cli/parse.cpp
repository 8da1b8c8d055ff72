#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <psring/cli/parse.h>
#include <psring/common/base/error.h>

namespace psring::cli {
namespace {

constexpr const char* kConfig = "--config";

template <class Number>
bool is_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// The parser alone would take -1 for a very large number, and "3.5 apples" for whatever strtold makes of it.
void check_numbers(CLI::App& command) {
  for (CLI::Option* option : command.get_options({})) {
    const std::string type = option->get_type_name();
    if (type == "UINT")
      option->check([](const std::string& text) {
        return is_number<std::uint64_t>(text) ? "" : fmt::format("expected a whole number, got '{}'", text);
      });
    if (type == "FLOAT")
      option->check([](const std::string& text) {
        return is_number<double>(text) ? "" : fmt::format("expected a number, got '{}'", text);
      });
  }
  for (CLI::App* subcommand : command.get_subcommands({})) check_numbers(*subcommand);
}

std::string visible_names(const CLI::App& root) {
  std::string names;
  for (const CLI::App* command : root.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

/// The command that the words name, which is `root` where it has no subcommands or the words only ask for help.
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

/// The value of --config; "" where it is not given.
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

/// What the file says, as words for the command line.
std::vector<std::string> read_config(const CLI::App& command, const std::string& file,
                                     const std::vector<std::string>& words) {
  std::ifstream in(file);
  if (!in) fail(ErrorKind::data, "{} {}: cannot read", kConfig, file);
  std::vector<std::string> added;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(in)) {
    const std::string option = "--" + item.name;
    if (!item.parents.empty() || option == kConfig || option == "--help" ||
        command.get_option_no_throw(option) == nullptr)
      fail(ErrorKind::usage, "{} {}: unknown key '{}'", kConfig, file, item.fullname());
    if (is_given(words, option)) continue;
    added.push_back(fmt::format("{}={}", option, fmt::join(item.inputs, ",")));
  }
  return added;
}

}  // namespace

void add_config(CLI::App& command) {
  // Its value is read before the parser runs, which then only has to know the option.
  command.add_option_function<std::string>(
      kConfig, [](const std::string&) {},
      "a file of KEY = VALUE lines with the same names; the command line goes first");
}

std::optional<int> parse(CLI::App& root, const std::vector<std::string>& words) {
  CLI::App& command = command_of(root, words);
  std::vector<std::string> all(words.begin() + 1, words.end());
  if (const std::string file = config_file(words); !file.empty() && command.get_option_no_throw(kConfig) != nullptr) {
    const std::vector<std::string> added = read_config(command, file, words);
    all.insert(all.end(), added.begin(), added.end());
  }
  check_numbers(root);
  root.name(std::filesystem::path(words.front()).filename().string());  // as the parser does itself, given argv
  try {
    std::reverse(all.begin(), all.end());  // the parser takes them from the back
    root.parse(std::move(all));
  } catch (const CLI::Success& success) {
    return root.exit(success);
  } catch (const CLI::ExtrasError& error) {
    const std::string line = error.what();
    fail(ErrorKind::usage, "unknown argument {}; --help lists what there is", line.substr(line.rfind(": ") + 2));
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    fail(ErrorKind::usage, "{}", line);
  }
  return std::nullopt;
}

}  // namespace psring::cli
