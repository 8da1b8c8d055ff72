#pragma once

#include <cstdint>
#include <span>

namespace psring::worker {

/// The area under the ROC curve: the share of pairs of a row of class 1 and a row of class 0 in which the first has
/// the larger output; equal outputs count half. 0.5 if a class has no row. Exact. The sizes are equal.
double area_under_curve(std::span<const float> outputs, std::span<const std::int32_t> classes);

}  // namespace psring::worker
