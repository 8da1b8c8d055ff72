#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace psring {

/// A name with arguments, as written on the command line: `mlp:784-512-10`, `gpt:layers=4,dim=128`, `idx:some/folder`,
/// `trimmed-mean:k=1`. After the colon come `key=value` pairs, or one free text. Some names take a free text before the
/// pairs: `csv:FILE,missing=mean`.
class Spec {
 public:
  /// Throws usage, naming `flag`, if the text has no name, an empty key, or the same key twice.
  static Spec parse(std::string_view flag, std::string_view text);

  /// The flag that the text was given to, for error messages.
  const std::string& flag() const { return flag_; }
  const std::string& name() const { return name_; }
  /// The whole text after the colon; empty without a colon.
  const std::string& argument() const { return argument_; }
  const std::string& text() const { return text_; }

  /// Returns the spec with its free text as the value of `key`. Without this, a free text before pairs is refused.
  /// Throws usage if the key stands in the text, too.
  Spec with_free_text_as(const std::string& key) const;

  static constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  /// Returns the value of a key, or the fallback. Throws usage if the value is not a whole number from 1 to `most`.
  std::size_t positive(const std::string& key, std::size_t fallback, std::size_t most = kAny) const {
    return whole(key, fallback, 1, most);
  }
  /// The same, but 0 is allowed.
  std::size_t count(const std::string& key, std::size_t fallback, std::size_t most = kAny) const {
    return whole(key, fallback, 0, most);
  }
  std::string string(const std::string& key, const std::string& fallback) const;
  double number(const std::string& key, double fallback) const;

  /// Throws usage, naming the flag, the unknown key and the known keys, if a key is not in `known`, or if the text
  /// after the name is not a list of keys and values.
  void allow_only(const std::set<std::string>& known) const;

 private:
  std::size_t whole(const std::string& key, std::size_t fallback, std::size_t least, std::size_t most) const;
  /// Throws usage if a free text stands before the pairs.
  const std::map<std::string, std::string>& pairs() const;
  [[noreturn]] void fail_pair(std::string_view pair) const;

  std::string flag_;
  std::string text_;
  std::string name_;
  std::string argument_;
  std::string before_pairs_;  ///< a free text before pairs
  std::map<std::string, std::string> values_;
};

/// Parses a whole number > 0. Throws usage, naming `flag`.
std::size_t parse_positive(std::string_view flag, std::string_view text);
/// The same, but 0 is allowed.
std::size_t parse_count(std::string_view flag, std::string_view text);

/// Parses bytes with binary suffixes: `25M` is 25 MiB, `64K`, `1G`, `512`. Throws usage, naming `flag`.
std::size_t parse_bytes(std::string_view flag, std::string_view text);

}  // namespace psring
