#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/common/device/arena.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Runs a model on one batch after another, layer by layer. The activations are allocated once and booked as
/// Category::activations. The order for a batch is: begin, fill input() and targets(), forward from layer 0 to the
/// last, loss; for training, then backward from the last layer to 0. One object serves one thread.
///
/// In a graph, an activation that several layers read gets the sum of their gradients.
///
/// `wanted` lists the gradients of each layer's backward. If nothing is wanted of a layer, its backward is not called.
///
/// Activation checkpointing: with `recomputed` ranges of layers, only outputs that other ranges read are kept for
/// backward. Before backward of such a range, the caller runs its forward again (see to_recompute), except for the
/// range that ran last (Chen et al., arXiv:1604.06174).
class Network {
 public:
  /// The types of stored values: f32, f16 or bf16.
  struct Types {
    DType parameters = DType::f32;
    DType activations = DType::f32;
    DType gradients = DType::f32;
  };
  struct Options {
    std::size_t max_batch = 1;  ///< samples
    Types types = {};
    std::vector<Range> recomputed = {};  ///< empty, or ranges that cover all layers, ascending
    std::vector<Wanted> wanted = {};     ///< by layer; if empty, everything except layer 0's dx
    bool backward = true;                ///< false: for evaluation alone, without memory for gradients
    /// Micro-batches whose activations live at once: a pipeline's stage runs several forward passes before their
    /// backward passes. See HostNetwork::select.
    std::size_t in_flight = 1;
    bool input_gradient = false;  ///< the gradient of the first layer's input is wanted: another stage computes it on
    std::size_t first_layer = 0;  ///< the first layer's number in the whole model, which random numbers depend on
    Arena* arena = nullptr;       ///< for activations that the ranks of a tensor group sum; null: pages of its own
    /// Called after each pass of a layer on the host, with its floating-point operations: lets virtual time pass.
    std::function<void(double flops)> computed = {};
  };

  virtual ~Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Starts the next batch, of `batch` samples. REQUIRES: 0 < batch <= max_batch.
  virtual void begin(std::size_t batch, const Randomness& randomness = {});
  /// [batch, model.input_cols]; always f32, on the host.
  virtual Matrix input() = 0;
  /// [batch * model.rows_per_sample], on the host.
  virtual std::span<std::int32_t> targets() = 0;
  /// [batch * model.rows_per_sample, model.target_cols], on the host.
  Matrix target_values() { return {target_values_.data(), batch_ * model_->rows_per_sample, model_->target_cols}; }
  virtual ConstElements output_of(std::size_t layer) const = 0;
  /// The rows of this batch, by table. REQUIRES: called after `begin`; what the views refer to lives until the batch's
  /// backward.
  void set_tables(std::span<const TableView> tables) { tables_.assign(tables.begin(), tables.end()); }

  std::size_t layers() const { return model_->layers.size(); }
  /// `buffers`: see Forward.
  virtual void forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training = true,
                             std::span<const std::span<float>> buffers = {}) = 0;
  /// Returns the layers whose forward must run again, in order, before this layer's backward; empty if there are none.
  Range to_recompute(std::size_t layer) const;
  /// Computes the loss without a gradient, for evaluation.
  virtual LossResult evaluate() = 0;
  /// Computes the loss, and the gradient of scale * (its sum) from which backward starts. Returns nothing if the loss
  /// is not known yet; `loss_after` then returns it.
  virtual std::optional<LossResult> loss(float scale) = 0;
  /// Waits for the last loss and returns it. On a device, backward runs meanwhile.
  virtual LossResult loss_after() = 0;
  /// Computes the layer's gradients. Called after `loss`, in descending order, once for each layer of which something
  /// is wanted. `gradients` is empty if they are not wanted.
  virtual void backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                              std::span<const BoundGradient> gradients) = 0;

  /// Floating-point operations of forward and backward for a batch, according to the layers.
  double flops(std::size_t batch) const;
  std::size_t max_batch() const { return max_batch_; }
  /// The shape of the model's output for this batch.
  Shape output_shape() const { return shapes_.back(); }

 protected:
  /// Throws usage if the layers' shapes do not match. REQUIRES: the model outlives the network.
  Network(const Model& model, const Options& options);

  /// The activations that the layer reads.
  std::span<const std::size_t> sources(std::size_t layer) const { return sources_[layer]; }
  /// Returns whether the gradient of the layer's input from this source is wanted.
  bool wants_dx(std::size_t layer, std::size_t source) const;
  /// The last layer that reads activation i; layers() for the model's output.
  std::size_t last_reader(std::size_t i) const { return last_reader_[i]; }
  std::vector<Shape> shapes_for(std::size_t batch) const;
  /// Calls Options::computed.
  void computed(std::size_t layer, Wanted wanted, bool backward) const;

  /// A place in the buffer of all activations and saved values.
  struct Place {
    std::size_t offset = 0;
    std::size_t count = 0;
    DType type = DType::f32;
  };
  struct Places {
    std::vector<Place> activations;  ///< input of each layer; the last is the model's output
    std::vector<Place> saved;        ///< by layer
    std::vector<Place> saved_activations;
    std::size_t bytes = 0;
    std::size_t own_bytes = 0;  ///< the first of `bytes`, which each micro-batch in flight has for itself
    std::size_t alignment = 0;

    Place add(std::size_t count, DType type);
  };
  struct Kept {
    std::size_t floats = 0;
    std::size_t activations = 0;
  };
  /// `kept`: sizes that each layer saves. `input`: type of the first activation.
  Places place_layers(std::span<const Kept> kept, DType activations, DType input, std::size_t alignment) const;
  /// Returns whether activation i lives until backward although its layer runs forward again.
  bool outlives_its_range(std::size_t i) const;

  /// The rows that the layer reads; null if it has no table.
  const TableView* table_of(std::size_t layer) const;

  const Model* model_;
  const std::size_t max_batch_;
  const std::vector<Range> recomputed_;
  std::vector<Wanted> wanted_;  ///< by layer
  const bool input_gradient_;
  const std::size_t first_layer_;
  const std::function<void(double flops)> computed_;
  std::size_t held_ = 0;  ///< last layer that ran forward: the saved values of its range are valid
  std::size_t batch_ = 0;
  std::vector<Shape> shapes_;  ///< of activations, for this batch
  Randomness randomness_;      ///< of this batch
  std::vector<float> target_values_;
  std::vector<TableView> tables_;

 private:
  std::size_t range_of(std::size_t layer) const;

  std::vector<std::vector<std::size_t>> sources_;  ///< by layer
  std::vector<std::size_t> last_reader_;           ///< by activation
};

}  // namespace psring::worker
