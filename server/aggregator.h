#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace psring {
template <class T, class... Args>
class Registry;
class Spec;
}  // namespace psring

namespace psring::server {

/// Combines all workers' gradients into one. Elementwise, so that pieces and slices can be aggregated in any order;
/// stateless.
class Aggregator {
 public:
  virtual ~Aggregator() = default;
  /// Computes out[i] from inputs[0][i], inputs[1][i] ... in worker order. `out` overlaps no input.
  /// REQUIRES: at least one input; each has out.size() elements.
  virtual void aggregate(std::span<const float* const> inputs, std::span<float> out) const = 0;
  /// Returns the factor if the rule is the sum of the inputs in their order, in f32, times a factor. A device can
  /// aggregate such a rule. `inputs`: their number.
  virtual std::optional<float> sum_times(std::size_t /*inputs*/) const { return std::nullopt; }
};

/// The sum in worker order, in f32, times 1/n. Every strategy rounds this way.
std::unique_ptr<Aggregator> make_mean(const Spec& spec);
/// The mean of `workers` gradients if the inputs are already sums of some of them (--local-reduce).
std::unique_ptr<Aggregator> make_mean_of(std::size_t workers);
/// The sum in worker order, without 1/n.
std::unique_ptr<Aggregator> make_sum(const Spec& spec);
/// The median of the workers' values; for an even number, the mean of the two in the middle. Resists up to (n-1)/2
/// workers that send arbitrary values (Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018), also infinities
/// and NaN: a NaN is ordered after +infinity, as the largest value.
std::unique_ptr<Aggregator> make_median(const Spec& spec);
/// `trimmed-mean:k=1`: the mean without the k largest and k smallest values (same paper). NaN is ordered as in the
/// median, so up to k workers may send NaN. `aggregate` throws usage if 2k is not less than the number of workers.
std::unique_ptr<Aggregator> make_trimmed_mean(const Spec& spec);

/// Registers the rules above: `mean`, `sum`, `median`, `trimmed-mean`.
void register_builtin_aggregators(Registry<Aggregator>& registry);

}  // namespace psring::server
