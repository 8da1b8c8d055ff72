#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace psring::cli {

/// The name of the validator that marks an option for which "" is a value (Flag::allow_empty).
inline constexpr const char* kMayBeEmpty = "may be empty";

/// Returns whether "" is a value of the option.
bool may_be_empty(CLI::Option& option);

/// Returns the words of a command line as the parser (CLI11) reads them rightly. The parser drops an empty value after
/// '=' and takes the next word in its place; it drops empty items of a list; it takes [a,b] for two arguments, and the
/// next option for a missing value. Throws usage, naming the option, for a value that is missing, for an empty value or
/// item where none makes sense, and for a text that is not UTF-8. `words` are those after the command's name.
std::vector<std::string> checked_words(CLI::App& command, const std::vector<std::string>& words);

}  // namespace psring::cli
