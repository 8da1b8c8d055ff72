#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string_view>

#include <psring/cli/cluster/yaml.h>

namespace psring::cli {
namespace {

/// Words that YAML 1.1 or 1.2 reads as a truth value, as null, or as a number.
constexpr std::array<std::string_view, 11> kOtherValues = {"true", "false", "null", "yes", "no", "on",
                                                           "off",  "y",     "n",    "nan", "inf"};

bool is_plain(const std::string& text) {
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  const auto begins = [](unsigned char c) { return std::isalpha(c) != 0 || c == '/'; };
  if (text.empty() || !begins(static_cast<unsigned char>(text[0])) || !std::all_of(text.begin(), text.end(), is_safe))
    return false;
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kOtherValues.begin(), kOtherValues.end(), lower) == kOtherValues.end();
}

/// A text of JSON is a text of YAML.
std::string text_of(const std::string& text) { return is_plain(text) ? text : Json(text).dump_any_bytes(); }

std::string scalar(const Json& value) {
  if (value.is_string()) return text_of(value.get<std::string>());
  return value.dump();  // an empty object or list, too
}

/// Appends lines of a value that has members or items, each with `indent` spaces in front.
void append(std::string& out, const Json& value, std::size_t indent) {
  const std::string spaces(indent, ' ');
  const auto is_nested = [](const Json& json) { return (json.is_object() || json.is_array()) && json.size() > 0; };
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      out += spaces + text_of(key) + ":";
      if (!is_nested(member)) {
        out += " " + scalar(member) + "\n";
      } else {
        out += "\n";
        append(out, member, indent + 2);
      }
    }
    return;
  }
  for (const Json& item : value) {
    if (!is_nested(item)) {
      out += spaces + "- " + scalar(item) + "\n";
      continue;
    }
    const std::size_t begin = out.size();
    append(out, item, indent + 2);
    out[begin + indent] = '-';  // in place of a space before the first line of the item
  }
}

}  // namespace

std::string to_yaml(const Json& document) {
  std::string out = "---\n";
  append(out, document, 0);
  return out;
}

}  // namespace psring::cli
