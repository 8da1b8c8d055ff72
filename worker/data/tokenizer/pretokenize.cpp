#include <algorithm>
#include <array>
#include <iterator>

#include <psring/worker/data/tokenizer/pretokenize.h>
#include <psring/worker/data/tokenizer/unicode_table.h>

namespace psring::worker {
namespace {

template <std::size_t N>
bool contains(const CodeRange (&ranges)[N], std::uint32_t code) {
  const auto* const after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                             [](std::uint32_t c, const CodeRange& range) { return c < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

bool is_space(std::uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass class_of(std::uint32_t code) {
  if (is_space(code)) return CharClass::space;
  if (contains(kLetters, code)) return CharClass::letter;
  return contains(kNumbers, code) ? CharClass::number : CharClass::other;
}

/// Returns the length of a character by its first byte; 0 if no character begins with the byte.
std::uint8_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/// Returns the length of the contraction at `at`, which has an apostrophe there; 0 if there is none.
std::size_t contraction(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 7> kEndings{"s", "t", "re", "ve", "m", "ll", "d"};
  for (const std::string_view ending : kEndings)
    if (text.substr(at + 1).starts_with(ending)) return 1 + ending.size();
  return 0;
}

/// Returns the end of the run of characters of one class that begins at `at`.
std::size_t end_of_run(std::string_view text, std::size_t at, CharClass kind) {
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

/// A run of spaces leaves its last character to the word after it (\s+(?!\S)), unless it is the run's only one.
std::size_t end_of_spaces(std::string_view text, std::size_t begin) {
  const std::size_t end = end_of_run(text, begin, CharClass::space);
  if (end == text.size()) return end;
  std::size_t last = begin;  // the last character of the run
  for (std::size_t at = begin; at < end; at += character_at(text, at).bytes) last = at;
  return last > begin ? last : end;
}

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'')
    if (const std::size_t bytes = contraction(text, begin)) return begin + bytes;
  const std::size_t start = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Character first = character_at(text, start);
  if (first.kind != CharClass::space) return end_of_run(text, start, first.kind);
  return end_of_spaces(text, begin);
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::uint8_t bytes = length_of(byte(0));
  const Character invalid{.code = byte(0), .bytes = 1, .kind = CharClass::other};
  if (bytes == 0 || at + bytes > text.size()) return invalid;
  if (bytes == 1) return {byte(0), 1, class_of(byte(0))};
  std::uint32_t code = byte(0) & (0xFFU >> (bytes + 1));
  for (std::uint8_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return invalid;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return invalid;
  return {code, bytes, class_of(code)};
}

void pretokenize(std::string_view text, const std::function<void(std::string_view)>& each) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    each(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace psring::worker
