#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Runs a model on one batch after another, layer by layer, in activations that are allocated once and booked as
/// Category::activations. Order of a batch: begin, fill input() and targets(), forward of layer 0 to the last,
/// loss; to train, then backward of the last layer to 0. One object serves one thread.
///
/// `wanted` of each layer's backward, where not all is trained: a layer of which nothing is wanted has none.
///
/// With `recomputed` ranges of layers, of each range only its input is kept for backward: its first backward_layer
/// needs forward_again of the range before it, but for the range that ran last (Chen et al., arXiv:1604.06174).
class Network {
 public:
  /// What is kept in f32, f16 or bf16.
  struct Types {
    DType parameters = DType::f32;
    DType activations = DType::f32;
    DType gradients = DType::f32;
  };
  struct Options {
    std::size_t max_batch = 1;  ///< samples
    Types types = {};
    std::vector<Range> recomputed = {};  ///< none, or ranges that cover all layers, ascending
    std::vector<Wanted> wanted = {};     ///< by layer; empty: all, but for layer 0's dx
  };

  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The next batch has `batch` samples, 0 < batch <= max_batch.
  virtual void begin(std::size_t batch);
  /// [batch, model.input_cols]; always f32, and the host's.
  virtual Matrix input() = 0;
  /// [batch * model.rows_per_sample], the host's.
  virtual std::span<std::int32_t> targets() = 0;
  virtual ConstElements output_of(std::size_t layer) const = 0;

  std::size_t layers() const { return model_->layers.size(); }
  /// `buffers`: as Forward takes them.
  virtual void forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training = true,
                             std::span<const std::span<float>> buffers = {}) = 0;
  /// Layers whose forward has to run once more, in their order, before the layer's backward; empty: none.
  Range to_recompute(std::size_t layer) const;
  /// The loss, without a gradient: for evaluation.
  virtual LossResult evaluate() = 0;
  /// The loss, and the gradient of scale * (its sum) that backward starts from. Nothing: it is not known yet, and
  /// `loss_after` will say.
  virtual std::optional<LossResult> loss(float scale) = 0;
  /// The loss that was asked for last; waits for it. Backward goes on meanwhile, where a device computes.
  virtual LossResult loss_after() = 0;
  /// Writes the layer's gradients. Layers go in descending order, each of which something is wanted once after `loss`.
  /// `gradients`: empty where they are not wanted.
  virtual void backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                              std::span<const BoundGradient> gradients) = 0;

  /// Floating-point operations of forward and backward for a batch, as the layers state them.
  double flops(std::size_t batch) const;

 protected:
  /// Throws usage where the layers do not fit each other. REQUIRES: the model outlives it.
  Network(const Model& model, const Options& options);

  std::vector<Shape> shapes_for(std::size_t batch) const;

  /// Where activations, and what layers keep for backward, lie in one buffer.
  struct Place {
    std::size_t offset = 0;
    std::size_t count = 0;
    DType type = DType::f32;
  };
  struct Places {
    std::vector<Place> activations;  ///< by layer the input; the last is the model's output
    std::vector<Place> saved;        ///< by layer
    std::vector<Place> saved_activations;
    std::size_t bytes = 0;
    std::size_t alignment = 0;

    Place add(std::size_t count, DType type);
  };
  struct Kept {
    std::size_t floats = 0;
    std::size_t activations = 0;
  };
  /// `kept`: of each layer. `input`: of the first activation.
  Places place_layers(std::span<const Kept> kept, DType activations, DType input, std::size_t alignment) const;

  const Model* model_;
  const std::size_t max_batch_;
  const std::vector<Range> recomputed_;
  std::vector<Wanted> wanted_;  ///< by layer
  std::size_t held_ = 0;        ///< the layer that ran forward last: what its range saved is there
  std::size_t batch_ = 0;
  std::vector<Shape> shapes_;  ///< of activations, for this batch
};

}  // namespace psring::worker
