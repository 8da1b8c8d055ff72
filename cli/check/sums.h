#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <psring/cli/language.h>
#include <psring/common/base/range.h>

namespace psring::cli {

/// Vectors for at most 8 ranks, whose sums tell how often each rank was added: every element of rank r is 4^r.
std::vector<std::vector<float>> counting_vectors(std::size_t ranks, std::size_t elements);

/// A wrong element of a sum over all ranks.
struct WrongSum {
  std::size_t rank = 0;   ///< the rank that has it
  std::size_t ranks = 1;  ///< of the group
  std::size_t element = 0;
  Range part;  ///< the rank's part of the vector
  float found = 0;
  std::span<const float> expected;  ///< of all elements
  float counted = 0;                ///< the same element after the same call on counting_vectors
  /// The rank whose part is complete here instead; the group's size: none.
  std::size_t complete_part = 0;
};

/// Says which rank has which wrong element, and what it is: whose value is missing or counted twice, another element's
/// sum, a multiple of the right one.
std::string explain_sum(Language language, const WrongSum& wrong);

/// The same for an element of an all-gather: part r of `expected` comes from rank r.
std::string explain_gather(Language language, std::size_t rank, std::size_t ranks, std::size_t element,
                           std::span<const float> found, std::span<const float> expected);

}  // namespace psring::cli
