#include <algorithm>

#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

constexpr std::size_t kRowsOfASum = 64;

/// partial = the sum of `rows` rows, plus `partial` except in the first call of a sum.
void sum_rows(ConstMatrix dy, std::size_t begin, std::size_t end, float* __restrict partial) {
  std::size_t r = begin;
  for (; r + 4 <= end; r += 4) {
    const float* a = dy.row(r);
    const float* b = dy.row(r + 1);
    const float* c = dy.row(r + 2);
    const float* d = dy.row(r + 3);
    for (std::size_t j = 0; j < dy.cols; ++j) partial[j] += (a[j] + b[j]) + (c[j] + d[j]);
  }
  for (; r < end; ++r) {
    const float* a = dy.row(r);
    for (std::size_t j = 0; j < dy.cols; ++j) partial[j] += a[j];
  }
}

}  // namespace

float dot_product(const float* a, const float* b, std::size_t n) {
  float lanes[8] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % 8] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void add_bias(ConstMatrix x, std::span<const float> bias, Matrix y) {
  check(bias.size() == x.cols && x.cols == y.cols && x.rows == y.rows, "add_bias: {} x {} and {} biases", x.rows,
        x.cols, bias.size());
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* from = x.row(r);
    float* to = y.row(r);
#pragma GCC ivdep
    for (std::size_t j = 0; j < x.cols; ++j) to[j] = from[j] + bias[j];
  }
}

void add_column_sums(ConstMatrix dy, float beta, std::span<float> into, std::span<float> scratch) {
  check(into.size() == dy.cols && scratch.size() >= dy.cols, "add_column_sums: {} columns into {}", dy.cols,
        into.size());
  if (beta == 0) std::fill(into.begin(), into.end(), 0.0F);
  for (std::size_t begin = 0; begin < dy.rows; begin += kRowsOfASum) {
    std::fill_n(scratch.data(), dy.cols, 0.0F);
    sum_rows(dy, begin, std::min(begin + kRowsOfASum, dy.rows), scratch.data());
    for (std::size_t j = 0; j < dy.cols; ++j) into[j] += scratch[j];
  }
}

}  // namespace psring::worker
