#include <algorithm>
#include <queue>
#include <tuple>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/tokenizer/pretokenize.h>
#include <psring/worker/data/tokenizer/tokenizer.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostCachedWords = 100'000;
constexpr std::size_t kMostCachedBytes = 64;  // of a word
constexpr std::uint32_t kNone = UINT32_MAX;

/// A token of a word that is being merged: a doubly linked list by index.
struct Piece {
  std::uint32_t token = 0;
  std::uint32_t previous = kNone;
  std::uint32_t next = kNone;
};

/// A pair that can be merged: its rank, the place of its left piece, and both tokens, to see whether it still exists.
using Candidate = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> tokens, const std::vector<Merge>& merges, const std::string& source)
    : tokens_(std::move(tokens)), byte_tokens_(256, kNone), merge_list_(merges) {
  std::unordered_map<std::string_view, std::uint32_t> ids;
  for (std::uint32_t id = 0; id < tokens_.size(); ++id) {
    const std::string& text = tokens_[id];
    if (!ids.emplace(text, id).second && !text.empty())
      fail(ErrorKind::data, "{}: two tokens have the same text: {} and {}", source, ids.at(text), id);
    if (text.size() == 1) byte_tokens_[static_cast<unsigned char>(text[0])] = id;
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (byte_tokens_[byte] == kNone) fail(ErrorKind::data, "{}: has no token for byte {}", source, byte);
  if (const auto found = ids.find(kEndOfText); found != ids.end()) end_of_text_ = found->second;
  for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto id = [&](const std::string& text) {
      const auto found = ids.find(text);
      if (found == ids.end())
        fail(ErrorKind::data, "{}: merge {} needs the token '{}', which the vocabulary lacks", source, rank + 1,
             printable(text));
      return found->second;
    };
    // The last of equal merges counts, as in GPT-2's own code.
    merges_.insert_or_assign(key(id(left), id(right)), Found{rank, id(left + right)});
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return {std::move(tokens), {}, "bytes"};
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) {
  std::vector<std::uint32_t> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t special = end_of_text_ ? std::min(text.find(kEndOfText, at), text.size()) : text.size();
    encode_ordinary(text.substr(at, special - at), out);
    if (special == text.size()) break;
    out.push_back(*end_of_text_);
    at = special + kEndOfText.size();
  }
  return out;
}

void Tokenizer::encode_ordinary(std::string_view text, std::vector<std::uint32_t>& out) {
  if (merges_.empty()) {
    for (const char c : text) out.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
    return;
  }
  pretokenize(text, [&](std::string_view word) {
    if (word.size() > kMostCachedBytes) return encode_word(word, out);
    const auto found = words_.find(std::string(word));
    if (found != words_.end()) {
      out.insert(out.end(), found->second.begin(), found->second.end());
      return;
    }
    std::vector<std::uint32_t> made;
    encode_word(word, made);
    out.insert(out.end(), made.begin(), made.end());
    if (words_.size() == kMostCachedWords) words_.clear();
    words_.emplace(word, std::move(made));
  });
}

/// Merges in rounds, as GPT-2's own encoder: a round takes all places of the best pair, from left to right, before
/// pairs that it creates count. A queue finds the pairs in O(n log n); a word may be as long as the text.
void Tokenizer::encode_word(std::string_view word, std::vector<std::uint32_t>& out) const {
  std::vector<Piece> pieces(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::uint32_t left) {
    if (left == kNone || pieces[left].next == kNone) return;
    const std::uint32_t a = pieces[left].token;
    const std::uint32_t b = pieces[pieces[left].next].token;
    if (const auto found = merges_.find(key(a, b)); found != merges_.end())
      queue.emplace(found->second.rank, left, a, b);
  };
  for (std::uint32_t i = 0; i < pieces.size(); ++i)
    pieces[i] = {byte_tokens_[static_cast<unsigned char>(word[i])], i == 0 ? kNone : i - 1,
                 i + 1 == pieces.size() ? kNone : i + 1};
  for (std::uint32_t i = 0; i < pieces.size(); ++i) consider(i);

  std::vector<Candidate> round;
  while (!queue.empty()) {
    round.clear();
    const std::uint32_t rank = std::get<0>(queue.top());
    for (; !queue.empty() && std::get<0>(queue.top()) == rank; queue.pop()) round.push_back(queue.top());
    for (const auto& [_, left, a, b] : round) {
      Piece& piece = pieces[left];
      const std::uint32_t right = piece.next;
      if (piece.token != a || right == kNone || pieces[right].token != b) continue;  // merged since
      piece.token = merges_.at(key(a, b)).token;
      piece.next = pieces[right].next;
      if (piece.next != kNone) pieces[piece.next].previous = left;
      pieces[right].token = kNone;
      consider(piece.previous);
      consider(left);
    }
  }
  for (std::uint32_t i = 0; i != kNone && !pieces.empty(); i = pieces[i].next) out.push_back(pieces[i].token);
}

std::string Tokenizer::decode(const std::vector<std::uint32_t>& tokens) const {
  std::string text;
  for (const std::uint32_t token : tokens) {
    check(token < size(), "token {} of a vocabulary of {}", token, size());
    text += tokens_[token];
  }
  return text;
}

}  // namespace psring::worker
