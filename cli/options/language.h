#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace psring::cli {

/// The language of a command's output for readers. Names of options and strategies, and JSON, are the same in both.
enum class Language : std::uint8_t { en, zh };

/// The help of --lang.
inline constexpr const char* kLanguageHelp = "language of the output: en, or zh for Chinese; JSON stays as it is";

/// Parses --lang. Throws usage.
Language parse_language(const std::string& text);

/// A text in both languages: format strings have the same fields.
struct Text {
  const char* en;
  const char* zh;

  const char* in(Language language) const { return language == Language::zh ? zh : en; }
};

/// Formats a text in one of the languages.
template <class... Values>
std::string say(Language language, const Text& text, const Values&... values) {
  return fmt::format(fmt::runtime(text.in(language)), values...);
}

}  // namespace psring::cli
