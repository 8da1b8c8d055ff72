#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace psring::worker {

/// How the next token is chosen from the logits.
struct Sampling {
  double temperature = 0;  ///< 0: greedy, the first of the largest logits
  std::size_t top_k = 0;   ///< draw from the k most probable tokens; 0: from all
  double top_p = 1;        ///< then from the fewest of them whose probabilities reach top_p
  std::uint64_t seed = 1;
};

/// Chooses token `step` of a sequence. A draw depends only on the logits, the seed, the sequence's number and the step.
/// The lower of two equally probable tokens counts as the more probable one. REQUIRES: temperature >= 0, 0 < top_p
/// <= 1.
class TokenSampler {
 public:
  explicit TokenSampler(const Sampling& sampling) : sampling_(sampling) {}
  std::uint32_t choose(std::span<const float> logits, std::size_t sequence, std::size_t step);

 private:
  Sampling sampling_;
  std::vector<std::uint32_t> order_;
  std::vector<double> weights_;
};

}  // namespace psring::worker
