#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/model/test_metrics.h>

namespace psring::worker {
namespace {

constexpr double kExponent = 1.05;
constexpr double kFewestValues = 10;
constexpr double kMostValues = 1e6;
constexpr std::size_t kRank = 4;

/// Independent random streams: values of CounterRng's `tensor`. Features follow.
enum ClickPart : std::uint32_t { kDense = 16, kIds = 17, kClicks = 18, kWeights = 19, kFeatures = 32 };

CounterRng source(std::uint64_t seed, std::uint32_t part, std::size_t number) {
  return CounterRng({.seed = seed,
                     .purpose = Purpose::synthetic,
                     .tensor = part,
                     .step = static_cast<std::uint32_t>(number),
                     .micro = static_cast<std::uint16_t>(number >> 32)});
}

class CriteoLikeDataset final : public Dataset {
 public:
  CriteoLikeDataset(std::shared_ptr<const CriteoLike> clicks, std::size_t first, std::size_t size)
      : clicks_(std::move(clicks)), first_(first), size_(size) {}

  std::size_t size() const override { return size_; }
  std::size_t input_cols() const override { return clicks_->spec().dense; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::size_t index, const SampleMemory& to) const override {
    clicks_->inputs(first_ + index, to.input);
    to.classes[0] = clicks_->clicked(first_ + index);
  }
  std::vector<KeyField> key_fields() const override {
    std::vector<KeyField> fields;
    for (std::size_t f = 0; f < clicks_->spec().features; ++f) fields.push_back({fmt::format("c{}", f)});
    return fields;
  }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    keys.resize(keys.size() + counts.size());
    clicks_->ids(first_ + index, std::span(keys).last(counts.size()));
    std::fill(counts.begin(), counts.end(), 1U);
  }

 private:
  const std::shared_ptr<const CriteoLike> clicks_;  ///< shared by both splits
  const std::size_t first_;
  const std::size_t size_;
};

/// The AUC of the true probabilities over the samples behind those that train.
double oracle_auc(const CriteoLike& clicks, const Dataset& test) {
  std::vector<float> logits(test.size());
  std::vector<std::int32_t> classes(test.size());
  std::vector<float> input(test.input_cols());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(clicks.logit(clicks.spec().samples + i));
    test.read(i, {input, std::span(classes).subspan(i, 1)});
  }
  return area_under_curve(logits, classes);
}

}  // namespace

CriteoLike::CriteoLike(const CriteoLikeSpec& spec) : spec_(spec) {
  const CounterRng weights = source(spec.seed, kWeights, 0);
  for (std::size_t d = 0; d < spec.dense; ++d) weights_.push_back(weights.normal(d));
  for (std::size_t f = 0; f < spec.features; ++f) {
    const double place = spec.features == 1 ? 0 : static_cast<double>(f) / static_cast<double>(spec.features - 1);
    values_.push_back(static_cast<std::size_t>(kFewestValues * std::pow(kMostValues / kFewestValues, place) + 0.5));
    powers_.push_back(std::pow(static_cast<double>(values_.back() + 1), 1 - kExponent) - 1);
  }
}

void CriteoLike::inputs(std::size_t sample, std::span<float> out) const {
  const CounterRng rng = source(spec_.seed, kDense, sample);
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = rng.normal(d);
}

/// Inverts the distribution of a real number from 1 to n + 1 with a density proportional to x^-1.05, and rounds down.
void CriteoLike::ids(std::size_t sample, std::span<std::uint64_t> out) const {
  const CounterRng rng = source(spec_.seed, kIds, sample);
  for (std::size_t f = 0; f < out.size(); ++f) {
    const double u = static_cast<double>(rng.bits(f)) * 0x1p-32;
    const double x = std::pow(1 + u * powers_[f], 1 / (1 - kExponent));
    out[f] = std::min(std::max<std::uint64_t>(static_cast<std::uint64_t>(x), 1), std::uint64_t{values_[f]});
  }
}

double CriteoLike::logit(std::size_t sample) const {
  std::vector<float> x(spec_.dense);
  std::vector<std::uint64_t> id(spec_.features);
  inputs(sample, x);
  ids(sample, id);
  const auto features = static_cast<double>(spec_.features);
  double dense = 0;
  for (std::size_t d = 0; d < x.size(); ++d) dense += static_cast<double>(weights_[d]) * static_cast<double>(x[d]);
  double single = 0;
  double sum[kRank] = {};
  double squares = 0;
  for (std::size_t f = 0; f < spec_.features; ++f) {
    const CounterRng rng = source(spec_.seed, kFeatures + static_cast<std::uint32_t>(f), id[f]);
    single += static_cast<double>(rng.normal(0));
    for (std::size_t r = 0; r < kRank; ++r) {
      const auto v = static_cast<double>(rng.normal(1 + r));
      sum[r] += v;
      squares += v * v;
    }
  }
  double pairs = -squares;  // twice the sum over pairs
  for (const double s : sum) pairs += s * s;
  double logit = -1.2 + std::sqrt(0.8 / features) * single;
  if (spec_.dense > 0) logit += std::sqrt(0.25 / static_cast<double>(spec_.dense)) * dense;
  if (spec_.features > 1) logit += std::sqrt(0.8 / (features * (features - 1))) * pairs / 2;
  return logit;
}

int CriteoLike::clicked(std::size_t sample) const {
  const double u = static_cast<double>(source(spec_.seed, kClicks, sample).bits(0)) * 0x1p-32;
  return u < 1 / (1 + std::exp(-logit(sample))) ? 1 : 0;
}

DataSplit make_criteo_like(const CriteoLikeSpec& spec) {
  const std::size_t tests = std::max<std::size_t>(1, spec.samples / 10);
  check(spec.features > 0, "clicks without keys");
  if (spec.samples > kMostSamples / 11 * 10)
    fail(ErrorKind::usage, "--data criteo-like:samples={}: expected at most {}", spec.samples, kMostSamples / 11 * 10);
  const auto clicks = std::make_shared<const CriteoLike>(spec);
  DataSplit split{std::make_unique<CriteoLikeDataset>(clicks, 0, spec.samples),
                  std::make_unique<CriteoLikeDataset>(clicks, spec.samples, tests)};
  split.best = [clicks, test = split.test.get()] {
    return fmt::format("the true probabilities rank the test set with an AUC of {:.4f}", oracle_auc(*clicks, *test));
  };
  return split;
}

}  // namespace psring::worker
