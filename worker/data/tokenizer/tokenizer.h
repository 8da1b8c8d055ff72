#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace psring::worker {

/// GPT-2's byte-pair encoding (Sennrich et al., arXiv:1508.07909, over bytes; Radford et al. 2019). A text is cut into
/// words by GPT-2's pattern; the bytes of a word are merged pair by pair, each time the pair that comes first in the
/// list of merges, at all its places from left to right. Every text has an encoding, and decoding it gives the text's
/// bytes again. The token <|endoftext|>, if the vocabulary has it, is encoded from its own text as one token.
///
/// Safe for use from one thread: words are cached.
class Tokenizer {
 public:
  /// A merge: the texts of both tokens, as bytes.
  using Merge = std::pair<std::string, std::string>;

  /// The vocabulary of bytes alone: token i is byte i.
  static Tokenizer bytes();
  /// Reads `path`: a tokenizer.json, or a folder with vocab.json and merges.txt, or with tokenizer.json. Throws data,
  /// naming the file, if it holds no byte-level BPE that this class can repeat exactly.
  static Tokenizer load(const std::string& path);
  /// `tokens` are the texts of all tokens as bytes, by id; every byte is one of them. Throws data, naming `source`, if
  /// a byte is missing, or a merge's parts or result are no tokens.
  Tokenizer(std::vector<std::string> tokens, const std::vector<Merge>& merges, const std::string& source);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::size_t size() const { return tokens_.size(); }
  /// The token of <|endoftext|>.
  std::optional<std::uint32_t> end_of_text() const { return end_of_text_; }
  /// Returns the bytes of a token. REQUIRES: token < size().
  const std::string& token(std::uint32_t token) const { return tokens_[token]; }

  std::vector<std::uint32_t> encode(std::string_view text);
  std::string decode(const std::vector<std::uint32_t>& tokens) const;

  /// Writes vocab.json and merges.txt into a folder, as GPT-2's are written.
  void save(const std::string& folder) const;

 private:
  struct Found {
    std::uint32_t rank;
    std::uint32_t token;
  };
  static std::uint64_t key(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }
  void encode_ordinary(std::string_view text, std::vector<std::uint32_t>& out);
  void encode_word(std::string_view word, std::vector<std::uint32_t>& out) const;

  std::vector<std::string> tokens_;
  std::vector<std::uint32_t> byte_tokens_;  ///< by byte
  std::unordered_map<std::uint64_t, Found> merges_;
  std::vector<Merge> merge_list_;
  std::optional<std::uint32_t> end_of_text_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> words_;
};

/// The text of the token that ends a document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

/// The printable character that GPT-2's files write for a byte, as UTF-8: '!' for '!', "Ġ" for a space.
std::string printable(std::string_view bytes);
/// Returns the bytes; nothing if a character stands for no byte.
std::optional<std::string> from_printable(std::string_view text);

/// Learns merges from a text until the vocabulary has `vocab` tokens: 256 bytes, the merges, and <|endoftext|>. Each
/// merge is the most frequent pair of neighbouring tokens within words; of equally frequent pairs the one with the
/// smaller left, then smaller right token. Ends early if no pair occurs twice. Throws usage if vocab is below 257.
Tokenizer train_tokenizer(std::string_view text, std::size_t vocab);

}  // namespace psring::worker
