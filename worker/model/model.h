#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// The result of a loss for one batch.
struct LossResult {
  double loss_sum = 0;        ///< over the rows
  std::uint64_t rows = 0;     ///< samples, or tokens
  std::uint64_t correct = 0;  ///< rows whose largest output is the target; 0 if the loss has no classes
};

/// A loss over the rows of the last layer's output.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Sums the loss over y's rows. If `dy` has data, writes the gradient of scale * (sum of the loss). `targets` has one
  /// class per row; it may be empty if the loss needs none.
  virtual LossResult evaluate(ConstMatrix y, std::span<const std::int32_t> targets, float scale, Matrix dy) const = 0;

  /// The loss's implementation on a device (TensorKernels::loss).
  enum class OnDevice : std::uint8_t { none, cross_entropy, mean_square };
  virtual OnDevice on_device() const { return OnDevice::none; }
};

/// A stack of layers with a loss. `blocks` groups consecutive layers: the units of `--units block`.
struct Model {
  std::string name;
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Loss> loss;
  std::size_t input_cols = 0;       ///< inputs of one sample: pixels, or tokens of a context
  bool tokens = false;              ///< inputs are token ids
  std::size_t rows_per_sample = 1;  ///< rows of the loss per sample: 1, or the context
  std::size_t classes = 0;          ///< number of classes, or the vocabulary; 0 if the loss reads no targets
  std::vector<std::vector<std::size_t>> blocks;  ///< layer indices; if empty, each layer is a block
};

}  // namespace psring::worker
