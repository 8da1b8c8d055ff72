#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/rng.h>
#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Describes generated clicks on advertisements; the shape follows from the model.
struct CriteoLikeSpec {
  std::size_t samples = 0;   ///< of the training split; the test split has a tenth as many, but at least one
  std::size_t dense = 0;     ///< real inputs
  std::size_t features = 0;  ///< key fields
  std::uint64_t seed = 0;
};

/// Clicks whose true probabilities are known. Every number is a function of (seed, sample) or of (seed, feature, id),
/// by CounterRng with Purpose::synthetic, so that nothing is stored:
///
///   inputs   x_d standard normal
///   ids      one for each feature f, from 1 to n_f, where n_f grows from 10 to 1,000,000 by equal factors over the
///            features; the probability of k is proportional to the integral of x^-1.05 from k to k + 1 (a bounded Zipf
///            law)
///   logit    -1.2 + sqrt(0.25 / D) sum_d a_d x_d + sqrt(0.8 / F) sum_f b_f(id) + sqrt(0.8 / F (F - 1)) sum_{f < g}
///            v_f(id) . v_g(id), where a, b and the four elements of v are standard normal
///   class    1 with probability sigmoid(logit)
class CriteoLike {
 public:
  explicit CriteoLike(const CriteoLikeSpec& spec);

  const CriteoLikeSpec& spec() const { return spec_; }
  /// The ids of field f are 1 … values(f).
  std::size_t values(std::size_t feature) const { return values_[feature]; }
  void inputs(std::size_t sample, std::span<float> out) const;
  void ids(std::size_t sample, std::span<std::uint64_t> out) const;
  /// The true logit: no model ranks better than it does, but by chance.
  double logit(std::size_t sample) const;
  int clicked(std::size_t sample) const;

 private:
  CriteoLikeSpec spec_;
  std::vector<std::size_t> values_;  ///< by feature
  std::vector<double> powers_;       ///< by feature: (n + 1)^(1 - 1.05) - 1
  std::vector<float> weights_;       ///< of the real inputs
};

/// The split is a function of a sample's number: those below `samples` train, the next ones test. Throws usage if there
/// are more than 2^32 samples, or no features.
DataSplit make_criteo_like(const CriteoLikeSpec& spec);

}  // namespace psring::worker
