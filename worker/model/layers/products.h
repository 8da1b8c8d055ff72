#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/device/kernels.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

// The products of y = x w with x [rows, in], w [in, out]: GPT-2's linear layers.

inline Gemm product(std::size_t rows, std::size_t in, std::size_t out) { return {.m = rows, .n = out, .k = in}; }
/// x^T dy
inline Gemm weight_product(std::size_t rows, std::size_t in, std::size_t out) {
  return {.m = in, .n = out, .k = rows, .transpose_a = true};
}
/// dy w^T
inline Gemm input_product(std::size_t rows, std::size_t in, std::size_t out) {
  return {.m = rows, .n = in, .k = out, .transpose_b = true};
}

// For a linear layer inside another layer, which needs the gradient of its input in any case.

/// Returns how many of the three products are computed.
inline double linear_products(Wanted wanted) {
  return 1 + (wanted.gradients ? 1 : 0) + (wanted.gradients || wanted.dx ? 1 : 0);
}

/// Appends the products that are computed.
inline void add_linear(std::vector<Gemm>& list, Wanted wanted, std::size_t rows, std::size_t in, std::size_t out) {
  list.push_back(product(rows, in, out));
  if (wanted.gradients) list.push_back(weight_product(rows, in, out));
  if (wanted.gradients || wanted.dx) list.push_back(input_product(rows, in, out));
}

}  // namespace psring::worker
