#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace psring {

/// A name with arguments, as written on the command line: `mlp:784-512-10`, `gpt:layers=4,dim=128`,
/// `idx:some/folder`, `trimmed-mean:k=1`. What follows the colon is `key=value` pairs, or one free text.
class Spec {
 public:
  /// Throws usage, naming `flag`, where the text has no name, an empty key, or a key twice.
  static Spec parse(std::string_view flag, std::string_view text);

  /// The flag that the text was given to, for errors.
  const std::string& flag() const { return flag_; }
  const std::string& name() const { return name_; }
  /// The whole text after the colon ("" where there is none).
  const std::string& argument() const { return argument_; }
  const std::string& text() const { return text_; }

  /// The value of a key, or the fallback. Throws usage where the value is not a positive whole number.
  std::size_t positive(const std::string& key, std::size_t fallback) const;
  /// The same, where 0 is one of the values.
  std::size_t count(const std::string& key, std::size_t fallback) const;
  std::string string(const std::string& key, const std::string& fallback) const;
  double number(const std::string& key, double fallback) const;

  /// Throws usage, naming the flag, the unknown key and the known ones, where a key is not in `known`, or where
  /// what follows the name is no list of keys and values.
  void allow_only(const std::set<std::string>& known) const;

 private:
  std::string flag_;
  std::string text_;
  std::string name_;
  std::string argument_;
  std::map<std::string, std::string> values_;
};

/// `text` as a whole number > 0; throws usage, naming `flag`, otherwise.
std::size_t parse_positive(std::string_view flag, std::string_view text);
/// The same, where 0 is one of the values.
std::size_t parse_count(std::string_view flag, std::string_view text);

/// Bytes with binary suffixes: `25M` is 25 MiB, `64K`, `1G`, `512`. Throws usage, naming `flag`.
std::size_t parse_bytes(std::string_view flag, std::string_view text);

}  // namespace psring
