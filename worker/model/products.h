#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/device/kernels.h>

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

/// Appends all three.
inline void add_linear(std::vector<Gemm>& list, std::size_t rows, std::size_t in, std::size_t out) {
  list.insert(list.end(), {product(rows, in, out), weight_product(rows, in, out), input_product(rows, in, out)});
}

}  // namespace psring::worker
