#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/common/device/buffer.h>
#include <psring/worker/model/generate/panel_kernels.h>
#include <psring/worker/model/generate/weight_format.h>

namespace psring {
class Parallel;
}

namespace psring::worker {

/// A linear layer's weights, in panels of kPanelColumns outputs: the last panel is filled with zeros. A product reads
/// each panel once, whatever the number of rows.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Makes a matrix of zeros, booked as parameters.
  PackedMatrix(std::size_t inputs, std::size_t outputs, const WeightFormat& format, MemoryLedger& ledger);

  std::size_t inputs() const { return inputs_; }
  std::size_t outputs() const { return outputs_; }
  /// Returns the outputs rounded up to whole panels: the least row stride of a product's result.
  std::size_t padded_outputs() const { return panels() * kPanelColumns; }
  const WeightFormat& format() const { return format_; }
  std::size_t size_bytes() const { return format_.size_bytes(inputs_, padded_outputs()); }

  /// Rounds and stores the weights of output `output`.
  void set_column(std::size_t output, std::span<const float> weights);
  /// Returns the weights of output `output`, as the products see them.
  void get_column(std::size_t output, std::span<float> weights) const;

  /// Returns element (input, output) in its stored form, and sets it: to save and load quantised files.
  std::uint8_t quantised(std::size_t input, std::size_t output) const;
  void set_quantised(std::size_t input, std::size_t output, std::uint8_t q);
  /// The scales and zero points of an output: one, or one per group.
  float scale(std::size_t group, std::size_t output) const;
  void set_scale(std::size_t group, std::size_t output, float scale);
  std::uint8_t zero(std::size_t group, std::size_t output) const;
  void set_zero(std::size_t group, std::size_t output, std::uint8_t zero);

  /// y = x w for `rows` rows: x [rows][x_stride], y [rows][padded_outputs()]. `sums`: scratch of
  /// sums_floats(rows) floats. An output's bits do not depend on the number of rows or threads.
  void multiply(std::size_t rows, const float* x, std::size_t x_stride, float* y, std::span<float> sums,
                const PanelKernels& kernels, Parallel& threads) const;
  std::size_t sums_floats(std::size_t rows) const { return format_.affine ? rows * format_.groups(inputs_) : 0; }

 private:
  std::size_t panels() const { return (outputs_ + kPanelColumns - 1) / kPanelColumns; }
  std::size_t groups() const { return format_.kind == WeightFormat::Kind::int4 ? format_.groups(inputs_) : 1; }
  std::size_t scale_index(std::size_t group, std::size_t output) const {
    return (output / kPanelColumns * groups() + group) * kPanelColumns + output % kPanelColumns;
  }
  void multiply_panel(std::size_t panel, PanelRows rows, std::span<const float> sums,
                      const PanelKernels& kernels) const;

  std::size_t inputs_ = 0;
  std::size_t outputs_ = 0;
  WeightFormat format_;
  Buffer values_;
  Buffer scales_;
  Buffer zeros_;
};

}  // namespace psring::worker
