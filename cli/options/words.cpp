#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>

#include <psring/cli/options/words.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

/// The parser also takes any number, of which it reads the beginning.
constexpr std::array<std::string_view, 8> kSwitchValues = {"true", "false", "on", "off", "yes", "no", "1", "0"};

/// A word that begins with an option's name: --name, --name=value or -n.
struct OptionWord {
  CLI::Option* option = nullptr;
  std::string name;                  ///< with dashes
  std::optional<std::string> value;  ///< the text after '='
};

/// Returns nothing for a value, a positional argument, and an unknown option.
std::optional<OptionWord> option_word(CLI::App& command, const std::string& word) {
  if (!word.starts_with('-')) return std::nullopt;
  OptionWord found{.option = nullptr, .name = word, .value = std::nullopt};
  const std::size_t equals = word.find('=');
  if (word.starts_with("--") && equals != std::string::npos) {
    found.name = word.substr(0, equals);
    found.value = word.substr(equals + 1);
  }
  found.option = command.get_option_no_throw(found.name);
  return found.option != nullptr ? std::optional(found) : std::nullopt;
}

bool has_empty_item(std::string_view list, char separator) {
  return list.starts_with(separator) || list.ends_with(separator) ||
         list.find(std::string(2, separator)) != std::string_view::npos;
}

/// Records, reports and messages are UTF-8.
void check_utf8(const std::string& option, const std::string& text) {
  if (!is_utf8(text))
    fail(ErrorKind::usage, "{}'{}' is not UTF-8, in which psring writes its records; choose another name",
         option.empty() ? "" : option + ": ", with_escapes(text));
}

/// A value that may be empty may be any text.
void check_value(const OptionWord& word, const std::string& value) {
  if (may_be_empty(*word.option)) return;
  if (value.empty()) fail(ErrorKind::usage, "{}: expected a value, got ''", word.name);
  check_utf8(word.name, value);
  const char separator = word.option->get_delimiter();
  if (separator != '\0' && has_empty_item(value, separator))
    fail(ErrorKind::usage, "{}: an item of the list '{}' is empty", word.name, value);
}

}  // namespace

bool may_be_empty(CLI::Option& option) {
  try {
    return option.get_validator(kMayBeEmpty) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

std::vector<std::string> checked_words(CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> checked;
  bool rest_is_positional = false;
  for (auto at = words.begin(); at != words.end(); ++at) {
    checked.push_back(*at);
    const std::optional<OptionWord> word = rest_is_positional ? std::nullopt : option_word(command, *at);
    rest_is_positional = rest_is_positional || *at == "--";
    if (!word) {
      check_utf8("", *at);
      // The parser takes [a,b] for two arguments. Positional arguments are paths.
      if (at->starts_with('[') && at->ends_with(']')) checked.back() = "./" + *at;
      continue;
    }
    const bool is_switch = word->option->get_items_expected_max() == 0;
    const bool needs_value = word->option->get_items_expected_min() > 0;
    const auto next = at + 1;
    if (is_switch) {
      if (word->value == "") fail(ErrorKind::usage, "{}: expected true or false after '=', got ''", word->name);
      if (word->value && std::ranges::find(kSwitchValues, *word->value) == kSwitchValues.end())
        fail(ErrorKind::usage, "{}: cannot be '{}'", word->name, *word->value);
    } else if (word->value) {
      check_value(*word, *word->value);
      if (word->value->empty()) checked.back() = word->name, checked.emplace_back();
    } else if (next != words.end() && needs_value) {
      if (option_word(command, *next))
        fail(ErrorKind::usage, "{0}: expected a value, got the option '{1}' (write {0}={1} if this is the value)",
             word->name, *next);
      check_value(*word, *next);
      checked.push_back(*next);
      at = next;
    } else if (next != words.end() && !next->starts_with('-')) {  // a value that may be left out
      check_value(*word, *next);
      checked.push_back(*next);
      at = next;
    }
  }
  return checked;
}

}  // namespace psring::cli
