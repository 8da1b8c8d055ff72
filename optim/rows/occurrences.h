#pragma once

#include <cstdint>
#include <limits>

namespace psring::optim {

/// Adds occurrences of a key. A sum that does not fit is the largest number: it counts as often, and not as none.
constexpr std::uint32_t add_occurrences(std::uint32_t a, std::uint32_t b) {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  return a > kMost - b ? kMost : a + b;
}

}  // namespace psring::optim
