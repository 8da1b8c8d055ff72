#include <algorithm>
#include <cmath>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/registry.h>
#include <psring/common/base/text/spec.h>
#include <psring/server/aggregator.h>

namespace psring::server {
namespace {

void add_up(std::span<const float* const> inputs, float scale, std::span<float> out) {
  // A block stays in the first-level cache from its first addend to the scaling.
  constexpr std::size_t kBlock = 2048;
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::size_t n = std::min(kBlock, out.size() - begin);
    float* __restrict sum = out.data() + begin;
    if (inputs.size() == 1) {
      const float* __restrict x = inputs[0] + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] = x[i] * scale;
      continue;
    }
    const float* __restrict a = inputs[0] + begin;
    const float* __restrict b = inputs[1] + begin;
    for (std::size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
    for (std::size_t k = 2; k < inputs.size(); ++k) {
      const float* __restrict x = inputs[k] + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
    }
    if (scale != 1.0F)
      for (std::size_t i = 0; i < n; ++i) sum[i] *= scale;
  }
}

class Mean final : public Aggregator {
 public:
  /// `workers`: the number of gradients that the inputs sum up; 0: each input is one gradient.
  explicit Mean(std::size_t workers = 0) : workers_(workers) {}
  void aggregate(std::span<const float* const> inputs, std::span<float> out) const override {
    add_up(inputs, *sum_times(inputs.size()), out);
  }
  std::optional<float> sum_times(std::size_t inputs) const override {
    return 1.0F / static_cast<float>(workers_ > 0 ? workers_ : inputs);
  }

 private:
  const std::size_t workers_;
};

class Sum final : public Aggregator {
 public:
  void aggregate(std::span<const float* const> inputs, std::span<float> out) const override {
    add_up(inputs, 1.0F, out);
  }
  std::optional<float> sum_times(std::size_t /*inputs*/) const override { return 1.0F; }
};

/// Orders ascending, with NaN last: `<` alone is no order if one of the values is NaN.
bool comes_before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

/// Sorts the workers' values of each element, cuts `trim` values off at both ends, and takes the mean of the others.
void trimmed(std::span<const float* const> inputs, std::size_t trim, std::span<float> out) {
  std::vector<float> values(inputs.size());
  const std::size_t left = inputs.size() - 2 * trim;
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t k = 0; k < inputs.size(); ++k) values[k] = inputs[k][i];
    std::sort(values.begin(), values.end(), comes_before);
    float sum = values[trim];
    for (std::size_t k = 1; k < left; ++k) sum += values[trim + k];
    out[i] = sum / static_cast<float>(left);
  }
}

class Median final : public Aggregator {
 public:
  void aggregate(std::span<const float* const> inputs, std::span<float> out) const override {
    trimmed(inputs, (inputs.size() - 1) / 2, out);
  }
};

class TrimmedMean final : public Aggregator {
 public:
  explicit TrimmedMean(std::size_t trim) : trim_(trim) {}
  void aggregate(std::span<const float* const> inputs, std::span<float> out) const override {
    if (trim_ >= (inputs.size() + 1) / 2)  // 2 k >= n, for any k
      fail(ErrorKind::usage, "--aggregate trimmed-mean:k={}: {} workers leave nothing", trim_, inputs.size());
    trimmed(inputs, trim_, out);
  }

 private:
  std::size_t trim_;
};

}  // namespace

std::unique_ptr<Aggregator> make_mean(const Spec& spec) {
  spec.allow_only({});
  return std::make_unique<Mean>();
}

std::unique_ptr<Aggregator> make_mean_of(std::size_t workers) { return std::make_unique<Mean>(workers); }

std::unique_ptr<Aggregator> make_sum(const Spec& spec) {
  spec.allow_only({});
  return std::make_unique<Sum>();
}

std::unique_ptr<Aggregator> make_median(const Spec& spec) {
  spec.allow_only({});
  return std::make_unique<Median>();
}

std::unique_ptr<Aggregator> make_trimmed_mean(const Spec& spec) {
  spec.allow_only({"k"});
  return std::make_unique<TrimmedMean>(spec.positive("k", 1));
}

void register_builtin_aggregators(Registry<Aggregator>& registry) {
  registry.add("mean", "mean of the workers' gradients", make_mean);
  registry.add("sum", "sum of the workers' gradients", make_sum);
  registry.add("median", "elementwise median", make_median);
  registry.add("trimmed-mean", "elementwise mean without the k=K largest and smallest", make_trimmed_mean);
}

}  // namespace psring::server
