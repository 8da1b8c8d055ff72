#pragma once

#include <span>

#include <psring/optim/exact_sum.h>

namespace psring::optim {

/// Returns the sum of squares of up to 256 (kCut) elements in f64, in a fixed order: element i is added to lane i % 16,
/// and the lanes are added as a balanced tree. Zeros at the end do not change the sum.
/// REQUIRES: values.size() <= kCut.
double block_square_sum(std::span<const float> values);

/// Adds the sum of squares of a range that starts at a multiple of kCut, one block of kCut elements at a time (only the
/// last block may be shorter). Therefore the sum is the same for every partition at multiples of kCut. NaN if an
/// element is not finite.
void add_square_sum(std::span<const float> values, ExactSum& sum);

/// Returns whether no value is NaN or infinite.
bool all_finite(std::span<const float> values);

}  // namespace psring::optim
