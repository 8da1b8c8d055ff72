#include <algorithm>
#include <cmath>
#include <numeric>

#include <psring/common/base/rng.h>
#include <psring/worker/model/generate/token_sampler.h>

namespace psring::worker {

std::uint32_t TokenSampler::choose(std::span<const float> logits, std::size_t sequence, std::size_t step) {
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (sampling_.temperature == 0)
    return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  const std::size_t kept = sampling_.top_k == 0 ? logits.size() : std::min(sampling_.top_k, logits.size());
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0U);
  const bool sorted = kept < logits.size() || sampling_.top_p < 1;
  if (sorted)
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(), before);
  const double most =
      static_cast<double>(sorted ? logits[order_.front()] : *std::max_element(logits.begin(), logits.end()));
  weights_.resize(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights_[i] = std::exp((static_cast<double>(logits[order_[i]]) - most) / sampling_.temperature);
    total += weights_[i];
  }
  std::size_t candidates = kept;
  if (sampling_.top_p < 1) {
    double sum = 0;
    candidates = 0;
    while (candidates < kept && sum < sampling_.top_p * total) sum += weights_[candidates++];
    total = sum;
  }
  const CounterRng rng({.seed = sampling_.seed,
                        .purpose = Purpose::sample,
                        .tensor = static_cast<std::uint32_t>(sequence),
                        .step = static_cast<std::uint32_t>(step)});
  const auto words = rng.block(0);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 21) ^ words[1] >> 11;  // 53 bits
  const double point = std::ldexp(static_cast<double>(bits), -53) * total;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < candidates; ++i) {
    sum += weights_[i];
    if (point < sum) return order_[i];
  }
  return order_[candidates - 1];
}

}  // namespace psring::worker
