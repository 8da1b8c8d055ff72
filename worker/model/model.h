#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// The targets of a batch's rows: classes or real numbers, as the model asks for.
struct Targets {
  std::span<const std::int32_t> classes = {};  ///< one per row
  ConstMatrix values = {};                     ///< [rows, Model::target_cols]

  Targets() = default;
  Targets(std::span<const std::int32_t> c, ConstMatrix v = {}) : classes(c), values(v) {}
  Targets(const std::vector<std::int32_t>& c) : classes(c) {}  // a view
};

/// The result of a loss for one batch.
struct LossResult {
  double loss_sum = 0;               ///< over the rows
  std::uint64_t rows = 0;            ///< samples, or tokens
  std::uint64_t correct = 0;         ///< rows whose largest output is the target; 0 if the loss has no classes
  std::vector<double> metrics = {};  ///< sums over the rows of Model::metrics; of evaluations alone
};

/// A figure of an evaluation besides the loss. `test_<name>` in metrics.jsonl and summary.json is its mean over all
/// test rows.
struct Metric {
  std::string name;
  /// Returns the sum over the rows of the model's outputs y.
  std::function<double(ConstMatrix y, const Targets& targets)> sum;
  /// In place of `sum`, for a figure that depends on all test rows together, as AUC does: returns the figure. Worker 0
  /// then evaluates alone.
  std::function<double(std::span<const float> outputs, const Targets& targets)> of_all = {};
};

/// A table of a model, whose rows are found by key.
struct TableSpec {
  std::string name;
  std::size_t width = 0;
  /// The data set's key fields [begin, end) whose keys it holds. With several fields a key is field << 56 | id, so that
  /// equal ids of two fields have two rows.
  Range features;
  /// Equal ids of several fields have one row: a key is the id alone.
  bool shares_ids = false;

  bool fuses() const { return features.size() > 1 && !shares_ids; }
};

/// Elements of the vectors that a loss exchanges with its tensor-parallel group; 0: none.
struct LossExchange {
  std::size_t largest_f32 = 0;
  std::size_t sum_f64 = 0;
};

/// A loss over the rows of the last layer's output.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Sums the loss over y's rows. If `dy` has data, writes the gradient of scale * (sum of the loss). `targets` has the
  /// data that the model declares: Model::classes, Model::target_cols, or nothing.
  virtual LossResult evaluate(ConstMatrix y, const Targets& targets, float scale, Matrix dy) const = 0;

  /// The collectives over the tensor-parallel group in one evaluation of `rows` rows, with or without a gradient.
  virtual LossExchange tensor_sums(std::size_t /*rows*/) const { return {}; }

  /// The loss's implementation on a device (TensorKernels::loss).
  enum class OnDevice : std::uint8_t { none, cross_entropy, mean_square };
  virtual OnDevice on_device() const { return OnDevice::none; }
};

/// Layers with a loss, which reads the last layer's output. `blocks` groups consecutive layers: the units of
/// `--units block`.
struct Model {
  std::string name;
  std::vector<std::unique_ptr<Layer>> layers;  ///< in the order of forward
  /// The activations that each layer reads, in the order of its inputs(): 0 is the model's input, i + 1 the output of
  /// layer i. Written by Graph (graph.h). Empty: a stack, where each layer reads the output of the layer before it.
  std::vector<std::vector<std::size_t>> sources = {};
  std::unique_ptr<Loss> loss;
  std::size_t input_cols = 0;  ///< inputs of one sample: pixels, or tokens of a context
  /// In a later stage of a pipeline, whose first layer reads the output of another stage: the rows and columns of that
  /// output for one sample. Nothing: the first layer reads the data set's input.
  std::optional<Shape> stage_input = std::nullopt;
  bool tokens = false;               ///< inputs are token ids
  std::size_t rows_per_sample = 1;   ///< rows of the loss per sample: 1, or the context
  std::size_t classes = 0;           ///< number of classes, or the vocabulary; 0 if the loss reads no classes
  std::size_t target_cols = 0;       ///< real numbers that are the target of a row; 0 if the loss reads none
  std::vector<Metric> metrics = {};  ///< of evaluations, besides the loss and the accuracy
  std::vector<std::vector<std::size_t>> blocks;  ///< layer indices; if empty, each layer is a block
  std::vector<TableSpec> tables = {};
};

}  // namespace psring::worker
