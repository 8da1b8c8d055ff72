#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// What a loss says of one batch.
struct LossResult {
  double loss_sum = 0;        ///< over the rows
  std::uint64_t rows = 0;     ///< samples, or tokens
  std::uint64_t correct = 0;  ///< rows whose largest output is the target; 0 where the loss has no classes
};

/// A loss over the rows of the last layer's output.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Sums the loss over y's rows. Where `dy` has data, writes the gradient of scale * (sum of the loss).
  /// `targets` has one class a row (and may be empty where the loss needs none).
  virtual LossResult evaluate(ConstMatrix y, std::span<const std::int32_t> targets, float scale, Matrix dy) const = 0;

  /// Which of a device's losses (TensorKernels::loss) it is.
  enum class OnDevice : std::uint8_t { none, cross_entropy, mean_square };
  virtual OnDevice on_device() const { return OnDevice::none; }
};

/// A stack of layers with a loss. `blocks` groups consecutive layers: the units of `--units block`.
struct Model {
  std::string name;
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Loss> loss;
  std::size_t input_cols = 0;       ///< of one sample: pixels, or tokens of a context
  bool tokens = false;              ///< inputs are token ids
  std::size_t rows_per_sample = 1;  ///< rows that the loss sees for a sample: 1, or the context
  std::size_t classes = 0;          ///< that it tells apart, or its vocabulary; 0: its loss reads no targets
  std::vector<std::vector<std::size_t>> blocks;  ///< layer indices; empty: each layer its own block
};

}  // namespace psring::worker
