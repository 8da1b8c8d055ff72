#pragma once

#include <cstddef>
#include <cstdint>

// Only the standard's own types: sources that are compiled for AVX-512 include this header.

namespace psring::worker {

/// Weights lie in panels of this many outputs: [inputs][kPanelColumns], so that a product reads them once, in order.
inline constexpr std::size_t kPanelColumns = 64;

/// The rows of a product y = x w.
struct PanelRows {
  std::size_t rows = 0;
  std::size_t inputs = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

/// The scales of a panel of int4 weights: w = scale (q - zero), for each group of `group` inputs.
struct PanelGroups {
  std::size_t group = 0;
  const float* scales = nullptr;        ///< [groups][kPanelColumns]
  const std::uint8_t* zeros = nullptr;  ///< [groups][kPanelColumns]; null: symmetric, zero is 8
  const float* sums = nullptr;          ///< with zeros: the sums of each row's inputs by group, [rows][groups]
  std::size_t sums_stride = 0;
};

/// Products of few rows with weights of 32, 8 or 4 bits, for one instruction set. Each output is one sum, with a fused
/// multiply-add per input, in the order of the inputs (per group for int4). So an output's bits depend neither on the
/// number of rows nor on the width of the vectors nor on the number of threads, and all instruction sets give the same
/// bits.
struct PanelKernels {
  const char* name;
  /// w [inputs][w_stride] in f32; any number of columns.
  void (*f32)(const PanelRows& rows, const float* w, std::size_t w_stride, std::size_t columns);
  /// y = scale (x w), with w [inputs][kPanelColumns] and a scale per column.
  void (*int8)(const PanelRows& rows, const std::int8_t* w, const float* scales);
  /// w [inputs][kPanelColumns / 2]: byte j holds column j in its low half, and column j + 32 in its high half.
  void (*int4)(const PanelRows& rows, const std::uint8_t* w, const PanelGroups& groups);
  /// Returns the sum of n floats; reads them as fast as the products read weights, to measure the bandwidth.
  float (*sum)(const float* values, std::size_t n);
};

/// Returns the fastest kernels that this processor runs.
const PanelKernels& panel_kernels();
/// Returns other kernels that it runs, for tests; null if there are none.
const PanelKernels* slower_panel_kernels();

}  // namespace psring::worker
