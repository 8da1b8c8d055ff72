#pragma once

#include <span>

#include <psring/optim/exact_sum.h>

namespace psring::optim {

/// The sum of squares of up to 256 (kCut) elements in f64 and in one fixed order: element i goes to lane
/// i % 16, the lanes are added as a balanced tree. Zeros at the end do not change it.
/// REQUIRES: values.size() <= kCut.
double block_square_sum(std::span<const float> values);

/// Adds the sum of squares of a range that starts on a multiple of kCut, a block of kCut at a time (only
/// the last may be shorter): so the sum is the same however a buffer is cut at multiples of kCut.
/// NaN where an element is not finite.
void add_square_sum(std::span<const float> values, ExactSum& sum);

/// Is none of them NaN or infinite?
bool all_finite(std::span<const float> values);

}  // namespace psring::optim
