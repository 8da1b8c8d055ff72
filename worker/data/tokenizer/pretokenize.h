#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace psring::worker {

/// The classes that GPT-2's pattern distinguishes. Space is Unicode's property White_Space.
enum class CharClass : std::uint8_t { letter, number, space, other };

/// A character of a UTF-8 text. A byte that begins no valid character is a character of one byte and of class other.
struct Character {
  std::uint32_t code = 0;
  std::uint8_t bytes = 1;
  CharClass kind = CharClass::other;
};

/// Decodes the character at `at`. REQUIRES: at < text.size().
Character character_at(std::string_view text, std::size_t at);

/// Cuts a text into the words that byte-pair encoding never merges across, and calls `each` with every word, in order.
/// The words are the matches of GPT-2's pattern, and together they are the text:
///
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void pretokenize(std::string_view text, const std::function<void(std::string_view)>& each);

}  // namespace psring::worker
