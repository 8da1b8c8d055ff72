#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/tokenizer/pretokenize.h>
#include <psring/worker/data/tokenizer/tokenizer.h>

namespace psring::worker {
namespace {

using Pair = std::pair<std::uint32_t, std::uint32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return std::hash<std::uint64_t>()(std::uint64_t{pair.first} << 32 | pair.second);
  }
};

/// A word of the text, as tokens, and how often it occurs.
struct Word {
  std::vector<std::uint32_t> tokens;
  std::uint64_t count = 0;
};

/// Orders pairs by their count; of equal counts the smaller pair comes first.
struct Frequent {
  std::uint64_t count;
  Pair pair;
  bool operator<(const Frequent& other) const { return std::tuple(count, other.pair) < std::tuple(other.count, pair); }
};

/// Counts the pairs of all words, and keeps the counts up to date while pairs are merged.
class Merger {
 public:
  explicit Merger(std::vector<Word> words) : words_(std::move(words)) {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const auto& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) change({tokens[i], tokens[i + 1]}, w, true);
    }
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  }

  /// Returns the most frequent pair; nothing if none occurs twice.
  std::optional<Pair> best() {
    while (!queue_.empty()) {
      const Frequent top = queue_.top();
      if (top.count < 2) return std::nullopt;
      const auto found = counts_.find(top.pair);
      if (found != counts_.end() && found->second == top.count) return top.pair;
      queue_.pop();  // its count changed, and the new count is in the queue, too
    }
    return std::nullopt;
  }

  void merge(const Pair& pair, std::uint32_t made) {
    touched_.clear();
    const std::unordered_set<std::size_t> places = std::move(places_[pair]);
    places_.erase(pair);
    for (const std::size_t w : places) merge_in(w, pair, made);
    counts_.erase(pair);
    for (const Pair& changed : touched_)
      if (const auto found = counts_.find(changed); found != counts_.end()) queue_.push({found->second, changed});
  }

 private:
  void change(const Pair& pair, std::size_t word, bool added) {
    std::uint64_t& count = counts_[pair];
    count = added ? count + words_[word].count : count - words_[word].count;
    if (added) places_[pair].insert(word);
  }

  void merge_in(std::size_t word, const Pair& pair, std::uint32_t made) {
    std::vector<std::uint32_t>& tokens = words_[word].tokens;
    std::vector<std::uint32_t> merged;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool here = i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      merged.push_back(here ? made : tokens[i]);
      if (here) ++i;
    }
    if (merged.size() == tokens.size()) return;  // the pair is gone from this word
    const auto all = [&](const std::vector<std::uint32_t>& list, bool added) {
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        change({list[i], list[i + 1]}, word, added);
        touched_.insert({list[i], list[i + 1]});
      }
    };
    all(tokens, false);
    all(merged, true);
    tokens = std::move(merged);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, std::uint64_t, PairHash> counts_;
  std::unordered_map<Pair, std::unordered_set<std::size_t>, PairHash> places_;  ///< words that had the pair
  std::unordered_set<Pair, PairHash> touched_;
  std::priority_queue<Frequent> queue_;
};

/// The bytes in the order of GPT-2's vocabulary: those with a printable character of their own come first.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text(1, static_cast<char>(byte));
    const bool own = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    (own ? first : second).push_back(std::move(text));
  }
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

Tokenizer train_tokenizer(std::string_view text, std::size_t vocab) {
  if (vocab < 257) fail(ErrorKind::usage, "--vocab {}: expected at least 257, 256 bytes and {}", vocab, kEndOfText);
  std::vector<std::string> tokens = byte_tokens();
  std::vector<std::uint32_t> ids(256);
  for (std::uint32_t id = 0; id < 256; ++id) ids[static_cast<unsigned char>(tokens[id][0])] = id;

  std::map<std::string, std::uint64_t, std::less<>> counted;
  const auto count = [&](std::string_view part) {
    pretokenize(part, [&](std::string_view word) {
      const auto found = counted.find(word);
      if (found != counted.end())
        ++found->second;
      else
        counted.emplace(word, 1);
    });
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(kEndOfText, at), text.size());
    count(text.substr(at, end - at));
    at = end + kEndOfText.size();
  }
  std::vector<Word> words;
  for (const auto& [bytes, occurrences] : counted) {
    Word& word = words.emplace_back();
    word.count = occurrences;
    for (const char c : bytes) word.tokens.push_back(ids[static_cast<unsigned char>(c)]);
  }

  Merger merger(std::move(words));
  std::vector<Tokenizer::Merge> merges;
  std::unordered_map<std::string, std::uint32_t> by_text;
  while (tokens.size() + 1 < vocab) {
    const std::optional<Pair> best = merger.best();
    if (!best) break;
    merges.emplace_back(tokens[best->first], tokens[best->second]);
    // Two merges may give the same text, such as ab + c and a + bc: they share its token.
    const auto [made, is_new] =
        by_text.emplace(merges.back().first + merges.back().second, static_cast<std::uint32_t>(tokens.size()));
    if (is_new) tokens.push_back(made->first);
    merger.merge(*best, made->second);
  }
  tokens.emplace_back(kEndOfText);
  return {std::move(tokens), merges, "the trained vocabulary"};
}

}  // namespace psring::worker
