// Summands of y and of dx are added up over the ranks; all other results are a rank's own, or equal at all ranks.
#include <algorithm>

#include <psring/cli/check/exercise.h>

using psring::exercise::ConstMatrix;
using psring::exercise::Matrix;
using psring::exercise::TensorPair;
using psring::exercise::TensorRank;

namespace {

/// c = a b
void multiply(const ConstMatrix& a, const ConstMatrix& b, const Matrix& c) {
  std::fill(c.values.begin(), c.values.end(), 0.0F);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t k = 0; k < a.columns; ++k)
      for (std::size_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
}

ConstMatrix read(const Matrix& matrix) { return {matrix.rows, matrix.columns, matrix.values}; }

/// A matrix with its own memory.
struct Owned {
  Owned(std::size_t rows, std::size_t columns) : values(rows * columns), matrix{rows, columns, values} {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  std::vector<float> values;
  Matrix matrix;
};

void transpose(const ConstMatrix& a, const Matrix& b) {
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) b.at(j, i) = a.at(i, j);
}

}  // namespace

void tensor_forward(TensorRank& rank, TensorPair& pair) {
  multiply(pair.x, pair.a, pair.hidden);
  for (float& value : pair.hidden.values) value = std::max(value, 0.0F);
  multiply(read(pair.hidden), pair.b, pair.y);
  rank.all_reduce(pair.y.values);
  for (std::size_t i = 0; i < pair.y.rows; ++i)
    for (std::size_t j = 0; j < pair.y.columns; ++j) pair.y.at(i, j) += pair.c.at(0, j);
}

void tensor_backward(TensorRank& rank, TensorPair& pair) {
  std::fill(pair.dc.values.begin(), pair.dc.values.end(), 0.0F);
  for (std::size_t i = 0; i < pair.dy.rows; ++i)
    for (std::size_t j = 0; j < pair.dy.columns; ++j) pair.dc.at(0, j) += pair.dy.at(i, j);
  Owned hidden_t(pair.hidden.columns, pair.hidden.rows);
  transpose(read(pair.hidden), hidden_t.matrix);
  multiply(read(hidden_t.matrix), pair.dy, pair.db);

  Owned b_t(pair.b.columns, pair.b.rows);
  transpose(pair.b, b_t.matrix);
  Owned before(pair.hidden.rows, pair.hidden.columns);  // the gradient of x A
  multiply(pair.dy, read(b_t.matrix), before.matrix);
  for (std::size_t i = 0; i < before.values.size(); ++i)
    if (pair.hidden.values[i] <= 0) before.values[i] = 0;

  Owned x_t(pair.x.columns, pair.x.rows);
  transpose(pair.x, x_t.matrix);
  multiply(read(x_t.matrix), read(before.matrix), pair.da);
  Owned a_t(pair.a.columns, pair.a.rows);
  transpose(pair.a, a_t.matrix);
  multiply(read(before.matrix), read(a_t.matrix), pair.dx);
  rank.all_reduce(pair.dx.values);
}
