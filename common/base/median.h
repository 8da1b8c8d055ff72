#pragma once

#include <algorithm>
#include <vector>

namespace psring {

/// Returns the middle value, or the mean of the two in the middle. REQUIRES: there is a value.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace psring
