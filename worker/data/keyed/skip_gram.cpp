#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/keyed/tsv.h>

namespace psring::worker {
namespace {

constexpr std::size_t kSentences = 20;  // the first of as many is in the test set
constexpr double kPower = 0.75;

/// Independent random streams: values of CounterRng's `tensor`.
enum Stream : std::uint32_t { kWindows = 25, kContexts = 26 };

/// The words of a text, and the distribution of negatives. Shared by both splits.
struct Text {
  std::vector<std::uint64_t> keys = {};  ///< by word
  std::vector<double> shares = {};       ///< by word: the share of negatives that are this word or one before
  std::vector<std::vector<std::uint32_t>> sentences = {};  ///< of words
};

Text read_text_of_words(const std::string& path, std::size_t least) {
  std::map<std::string, std::size_t, std::less<>> counts;
  const auto for_each_sentence = [&](auto&& each) {
    LineReader lines(path);
    std::vector<std::string_view> words;
    for (std::string line; lines.next(line);) {
      words.clear();
      for (std::size_t at = 0; (at = line.find_first_not_of(" \t", at)) != std::string::npos;) {
        const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
        words.push_back(std::string_view(line).substr(at, end - at));
        at = end;
      }
      each(words);
    }
  };
  for_each_sentence([&](const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      const auto found = counts.find(word);
      found == counts.end() ? void(counts.emplace(word, 1)) : void(++found->second);
    }
  });
  Text text;
  std::map<std::string_view, std::uint32_t> numbers;
  double sum = 0;
  for (const auto& [word, count] : counts) {
    if (count < least) continue;
    numbers.emplace(word, static_cast<std::uint32_t>(text.keys.size()));
    text.keys.push_back(key_of_text(word));
    text.shares.push_back(sum += std::pow(static_cast<double>(count), kPower));
  }
  for (double& share : text.shares) share /= sum;
  for_each_sentence([&](const std::vector<std::string_view>& words) {
    auto& sentence = text.sentences.emplace_back();
    for (const std::string_view word : words)
      if (const auto found = numbers.find(word); found != numbers.end()) sentence.push_back(found->second);
  });
  return text;
}

class SkipGram final : public Dataset {
 public:
  struct Options {
    std::size_t window;
    std::size_t negatives;
    std::size_t draws;
    std::uint64_t seed;
    bool test;
  };
  SkipGram(std::shared_ptr<const Text> text, const Options& options) : text_(std::move(text)), options_(options) {
    const CounterRng windows = source(kWindows, 0);
    for (std::size_t draw = 0; draw < options_.draws; ++draw)
      for (std::size_t s = 0; s < text_->sentences.size(); ++s)
        if ((s % kSentences == 0) == options_.test) add(text_->sentences[s], windows);
  }

  std::size_t size() const override { return size_; }
  void read(std::size_t /*index*/, const SampleMemory& /*to*/) const override {}
  std::vector<KeyField> key_fields() const override {
    std::vector<KeyField> fields{{"word"}, {"context"}};
    for (std::size_t i = 0; i < options_.negatives; ++i) fields.push_back({fmt::format("negative {}", i)});
    return fields;
  }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    check(index < size_, "read of sample {} of {}", index, size_);
    std::fill(counts.begin(), counts.end(), 1U);
    const std::size_t at = static_cast<std::size_t>(std::ranges::upper_bound(firsts_, index) - firsts_.begin()) - 1;
    const std::size_t place = index - firsts_[at];  // among the words of the window
    const std::uint32_t context = words_[at - before_[at] + place + (place < before_[at] ? 0 : 1)];
    keys.push_back(text_->keys[words_[at]]);
    keys.push_back(text_->keys[context]);
    const CounterRng rng = source(kContexts, static_cast<std::uint32_t>(index));
    std::size_t draw = 0;
    for (std::size_t i = 0; i < options_.negatives; ++i) {
      std::uint32_t word = context;
      while (word == context) word = drawn(static_cast<double>(rng.bits(draw++)) * 0x1p-32);
      keys.push_back(text_->keys[word]);
    }
  }

 private:
  /// Adds the samples of a sentence. A later draw adds the sentence again, with other windows, and with other
  /// negatives, because these depend on the sample's number.
  void add(const std::vector<std::uint32_t>& sentence, const CounterRng& windows) {
    for (std::size_t i = 0; i < sentence.size(); ++i) {
      const std::size_t width = 1 + windows.bits(words_.size()) % options_.window;
      const std::size_t before = std::min(i, width);
      const std::size_t after = std::min(sentence.size() - 1 - i, width);
      if (size_ + before + after > ~std::uint32_t{0})
        fail(ErrorKind::data, "{} draws of a text have more than {} pairs of words", options_.draws, ~std::uint32_t{0});
      before_.push_back(static_cast<std::uint8_t>(before));
      firsts_.push_back(size_);
      words_.push_back(sentence[i]);
      size_ += static_cast<std::uint32_t>(before + after);
    }
  }
  CounterRng source(Stream part, std::uint32_t number) const {
    return CounterRng({.seed = options_.seed,
                       .purpose = Purpose::synthetic,
                       .tensor = part,
                       .step = number,
                       .micro = options_.test ? std::uint16_t{1} : std::uint16_t{0}});
  }
  std::uint32_t drawn(double u) const {
    const auto found = std::ranges::upper_bound(text_->shares, u);
    return static_cast<std::uint32_t>(
        std::min<std::ptrdiff_t>(found - text_->shares.begin(), std::ssize(text_->shares) - 1));
  }

  const std::shared_ptr<const Text> text_;
  const Options options_;
  std::vector<std::uint32_t> words_;   ///< of the split's sentences, once for each draw
  std::vector<std::uint8_t> before_;   ///< by word: the words of its window that come before it
  std::vector<std::uint32_t> firsts_;  ///< by word: its first sample
  std::uint32_t size_ = 0;
};

}  // namespace

DataSplit make_skip_gram_data(const Spec& spec, const DataNeeds& needs) {
  constexpr std::size_t kMostWindow = 255;
  constexpr std::size_t kMostDraws = 1000;
  path_of(spec, "skip-gram:FILE");
  const Spec named = spec.with_free_text_as("file");
  named.allow_only({"file", "window", "least", "draws", "seed"});
  if (needs.key_fields < 3 || needs.targets || needs.target_values > 0)
    fail_misfit(spec, needs, "its samples are a word, its context and negatives, and have no target");
  const std::string path = named.string("file", "");
  const std::size_t window = named.positive("window", 5);
  const std::size_t least = named.positive("least", 5);
  const std::size_t draws = named.positive("draws", 1);
  if (window > kMostWindow)
    fail(ErrorKind::usage, "{} {}: expected a window of at most {}", spec.flag(), spec.text(), kMostWindow);
  if (draws > kMostDraws)
    fail(ErrorKind::usage, "{} {}: expected at most {} draws", spec.flag(), spec.text(), kMostDraws);
  const auto text = std::make_shared<const Text>(read_text_of_words(path, least));
  if (text->keys.size() < 2)
    fail(ErrorKind::data, "{}: {} words occur at least {} times, 2 expected", path, text->keys.size(), least);
  SkipGram::Options options{.window = window,
                            .negatives = needs.key_fields - 2,
                            .draws = draws,
                            .seed = named.positive("seed", needs.seed),
                            .test = false};
  DataSplit split;
  split.train = std::make_unique<SkipGram>(text, options);
  if (split.train->size() == 0)
    fail(ErrorKind::data, "{}: no sample: lines 0, {}, {} … are the test set, and a line is a sentence", path,
         kSentences, 2 * kSentences);
  options.draws = 1;
  options.test = true;
  split.test = std::make_unique<SkipGram>(text, options);
  if (split.test->size() == 0)
    fail(ErrorKind::data, "{}: no sample of the test set: its lines 0, {}, {} … have no two known words", path,
         kSentences, 2 * kSentences);
  split.fingerprint = [path, window, least, draws, seed = named.string("seed", "")] {
    return fmt::format("{}; window={},least={}{}{}{}", fingerprint_of(InputFile(path)), window, least,
                       draws == 1 ? "" : fmt::format(",draws={}", draws), seed.empty() ? "" : ",seed=", seed);
  };
  return split;
}

}  // namespace psring::worker
