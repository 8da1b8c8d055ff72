#pragma once

#include <cstddef>

namespace psring::test {

/// Bound on how far two f32 sums of the same `terms` terms may lie apart, as a share of the sum of the terms' sizes,
/// in whatever orders they are added: 2 γ(terms), γ(n) = n u / (1 − n u), u = 2⁻²⁴ (Higham, Accuracy and Stability of
/// Numerical Algorithms, section 4.2). Kernels choose that order by processor, shape and number of rows.
inline double f32_order_bound(std::size_t terms) {
  const double nu = static_cast<double>(terms) * 0x1p-24;
  return 2 * nu / (1 - nu);
}

}  // namespace psring::test
