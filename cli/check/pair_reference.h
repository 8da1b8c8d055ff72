#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::cli {

/// Two layers, y = relu(x A) B + c, in one process and in double precision: what the ranks of exercise 13 have to
/// compute together. All matrices are stored row after row.
struct Pair {
  std::size_t batch, inputs, hidden, outputs;
  std::vector<double> x, a, b, c;
  std::vector<double> dy;  ///< the gradient of y
};

/// Matrices of values in [-1, 1), which f32 holds exactly.
Pair random_pair(std::size_t batch, std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint64_t seed);

struct PairResult {
  std::vector<double> hidden, y, dx, da, db, dc;
};

/// Runs forward and backward of some of the hidden columns: a rank's summands of y (without c) and of dx, and its
/// columns of hidden and da, its rows of db. dc is whole. `relu` false leaves relu out, in both passes.
PairResult run_part(const Pair& pair, Range columns, bool relu = true);

/// Runs the whole pair: y with c.
PairResult run_whole(const Pair& pair, bool relu = true);

/// Some columns of a matrix that has `columns` of them.
std::vector<double> columns_of(const std::vector<double>& matrix, std::size_t columns, Range range);

}  // namespace psring::cli
