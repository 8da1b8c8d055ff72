#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/worker/model/generate/panel_kernels.h>

// The loops of PanelKernels over vectors `S`, which have a width, load, store, broadcast, fused multiply-add and the
// conversions of weights. Each source that includes this header is compiled for its own instructions, so nothing here
// may be shared between them: all functions have internal linkage.

namespace psring::worker {
namespace {

/// The most rows that share one pass over the weights: with 4 vectors of 16 columns they fill 24 of 32 registers.
constexpr std::size_t kRowsOfABlock = 6;

template <class S, std::size_t M, std::size_t N>
struct Sums {
  typename S::Vector at[M][N];

  void clear() {
    for (std::size_t m = 0; m < M; ++m)
      for (std::size_t v = 0; v < N; ++v) at[m][v] = S::broadcast(0);
  }
  void add(const float* x, std::size_t stride, const typename S::Vector (&w)[N]) {
#pragma GCC unroll 8
    for (std::size_t m = 0; m < M; ++m) {
      const typename S::Vector value = S::broadcast(x[m * stride]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < N; ++v) at[m][v] = S::multiply_add(value, w[v], at[m][v]);
    }
  }
};

/// Columns of vector v among N of a block that begins at a panel's `column`, where the halves of int4 bytes are 32
/// columns apart: the first N / 2 vectors are low halves.
template <class S, std::size_t N>
std::size_t nibble_column(std::size_t column, std::size_t v) {
  return v < N / 2 ? column + v * S::kWidth : kPanelColumns / 2 + column + (v - N / 2) * S::kWidth;
}

template <class S, std::size_t M, std::size_t N>
void f32_block(const PanelRows& rows, std::size_t row, const float* w, std::size_t w_stride, std::size_t column) {
  const float* x = rows.x + row * rows.x_stride;
  Sums<S, M, N> sums;
  sums.clear();
  w += column;
  for (std::size_t k = 0; k < rows.inputs; ++k, w += w_stride) {
    typename S::Vector values[N];
    for (std::size_t v = 0; v < N; ++v) values[v] = S::load(w + v * S::kWidth);
    sums.add(x + k, rows.x_stride, values);
  }
  for (std::size_t m = 0; m < M; ++m)
    for (std::size_t v = 0; v < N; ++v)
      S::store(rows.y + (row + m) * rows.y_stride + column + v * S::kWidth, sums.at[m][v]);
}

template <class S, std::size_t M, std::size_t N>
void int8_block(const PanelRows& rows, std::size_t row, const std::int8_t* w, const float* scales, std::size_t column) {
  const float* x = rows.x + row * rows.x_stride;
  Sums<S, M, N> sums;
  sums.clear();
  w += column;
  for (std::size_t k = 0; k < rows.inputs; ++k, w += kPanelColumns) {
    typename S::Vector values[N];
    for (std::size_t v = 0; v < N; ++v) values[v] = S::load_int8(w + v * S::kWidth);
    sums.add(x + k, rows.x_stride, values);
  }
  for (std::size_t m = 0; m < M; ++m)
    for (std::size_t v = 0; v < N; ++v)
      S::store(rows.y + (row + m) * rows.y_stride + column + v * S::kWidth,
               S::multiply(sums.at[m][v], S::load(scales + column + v * S::kWidth)));
}

template <class S, std::size_t M, std::size_t N>
void add_group(const PanelRows& rows, std::size_t row, const PanelGroups& groups, std::size_t g, std::size_t column,
               Sums<S, M, N>& sums) {
  for (std::size_t m = 0; m < M; ++m)
    for (std::size_t v = 0; v < N; ++v) {
      const std::size_t c = nibble_column<S, N>(column, v);
      typename S::Vector sum = sums.at[m][v];
      if (groups.zeros != nullptr)
        sum = S::multiply_add(S::negate(S::load_uint8(groups.zeros + g * kPanelColumns + c)),
                              S::broadcast(groups.sums[(row + m) * groups.sums_stride + g]), sum);
      float* y = rows.y + (row + m) * rows.y_stride + c;
      const typename S::Vector scale = S::load(groups.scales + g * kPanelColumns + c);
      S::store(y, g == 0 ? S::multiply(sum, scale) : S::multiply_add(sum, scale, S::load(y)));
    }
}

template <class S, std::size_t M, std::size_t N>
void int4_block(const PanelRows& rows, std::size_t row, const std::uint8_t* w, const PanelGroups& groups,
                std::size_t column) {
  const float* x = rows.x + row * rows.x_stride;
  const typename S::Nibbles nibbles(groups.zeros == nullptr ? -8 : 0);
  w += column;
  for (std::size_t g = 0, k = 0; k < rows.inputs; ++g) {
    const std::size_t end = k + groups.group < rows.inputs ? k + groups.group : rows.inputs;
    Sums<S, M, N> sums;
    sums.clear();
    for (; k < end; ++k, w += kPanelColumns / 2) {
      typename S::Vector values[N];
      for (std::size_t v = 0; v < N / 2; ++v) nibbles.load(w + v * S::kWidth, values[v], values[v + N / 2]);
      sums.add(x + k, rows.x_stride, values);
    }
    add_group<S, M, N>(rows, row, groups, g, column, sums);
  }
}

/// Calls body.template run<M>(row) for blocks of rows, the largest first.
template <class Body>
void for_blocks(std::size_t rows, const Body& body) {
  std::size_t row = 0;
  for (; row + kRowsOfABlock <= rows; row += kRowsOfABlock) body.template run<kRowsOfABlock>(row);
  for (; row + 3 <= rows; row += 3) body.template run<3>(row);
  for (; row < rows; ++row) body.template run<1>(row);
}

/// The number of vectors in a block's columns: the whole panel for one row, and the number that fits into registers for
/// more rows.
template <class S, std::size_t M>
constexpr std::size_t kVectors = M == 1 ? kPanelColumns / S::kWidth : S::kVectorsOfManyRows;

template <class S>
struct F32Panel {
  const PanelRows& rows;
  const float* w;
  std::size_t w_stride;
  std::size_t columns;

  template <std::size_t M>
  void run(std::size_t row) const {
    constexpr std::size_t kColumns = kVectors<S, M> * S::kWidth;
    std::size_t column = 0;
    for (; column + kColumns <= columns; column += kColumns)
      f32_block<S, M, kVectors<S, M>>(rows, row, w, w_stride, column);
    for (; column + S::kWidth <= columns; column += S::kWidth) f32_block<S, M, 1>(rows, row, w, w_stride, column);
    for (; column < columns; ++column)
      for (std::size_t m = row; m < row + M; ++m) {
        float sum = 0;
        for (std::size_t k = 0; k < rows.inputs; ++k)
          sum = __builtin_fmaf(rows.x[m * rows.x_stride + k], w[k * w_stride + column], sum);
        rows.y[m * rows.y_stride + column] = sum;
      }
  }
};

template <class S>
struct Int8Panel {
  const PanelRows& rows;
  const std::int8_t* w;
  const float* scales;

  template <std::size_t M>
  void run(std::size_t row) const {
    constexpr std::size_t kColumns = kVectors<S, M> * S::kWidth;
    for (std::size_t column = 0; column < kPanelColumns; column += kColumns)
      int8_block<S, M, kVectors<S, M>>(rows, row, w, scales, column);
  }
};

template <class S>
struct Int4Panel {
  const PanelRows& rows;
  const std::uint8_t* w;
  const PanelGroups& groups;

  template <std::size_t M>
  void run(std::size_t row) const {
    constexpr std::size_t kColumns = kVectors<S, M> * S::kWidth / 2;
    for (std::size_t column = 0; column < kPanelColumns / 2; column += kColumns)
      int4_block<S, M, kVectors<S, M>>(rows, row, w, groups, column);
  }
};

template <class S>
void f32_product(const PanelRows& rows, const float* w, std::size_t w_stride, std::size_t columns) {
  for_blocks(rows.rows, F32Panel<S>{rows, w, w_stride, columns});
}

template <class S>
void int8_product(const PanelRows& rows, const std::int8_t* w, const float* scales) {
  for_blocks(rows.rows, Int8Panel<S>{rows, w, scales});
}

template <class S>
void int4_product(const PanelRows& rows, const std::uint8_t* w, const PanelGroups& groups) {
  for_blocks(rows.rows, Int4Panel<S>{rows, w, groups});
}

template <class S>
float sum_of(const float* values, std::size_t n) {
  constexpr std::size_t kLanes = 8;
  typename S::Vector sums[kLanes];
  for (auto& sum : sums) sum = S::broadcast(0);
  const typename S::Vector one = S::broadcast(1);
  std::size_t i = 0;
  for (; i + kLanes * S::kWidth <= n; i += kLanes * S::kWidth)
    for (std::size_t v = 0; v < kLanes; ++v)
      sums[v] = S::multiply_add(one, S::load(values + i + v * S::kWidth), sums[v]);
  float total = 0;
  for (const auto& sum : sums) {
    float lanes[S::kWidth];
    S::store(lanes, sum);
    for (const float lane : lanes) total += lane;
  }
  for (; i < n; ++i) total += values[i];
  return total;
}

template <class S>
constexpr PanelKernels make_panel_kernels(const char* name) {
  return {name, f32_product<S>, int8_product<S>, int4_product<S>, sum_of<S>};
}

}  // namespace
}  // namespace psring::worker
