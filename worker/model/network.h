#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/range.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Runs a model on one batch after another, layer by layer, in activations that are allocated once and booked as
/// Category::activations. Order of a batch: begin, fill input() and targets(), forward of layer 0 to the last,
/// loss; to train, then backward of the last layer to 0. One object serves one thread.
///
/// Parameters, gradients and activations may be kept in 16 bit. A layer computes in f32 all the same: it is lent f32
/// copies of what it reads, and what it writes is rounded once. So every layer works in every precision.
///
/// `wanted` of each layer's backward, where not all is trained: a layer of which nothing is wanted has none.
///
/// With `recomputed` ranges of layers, of each range only its input is kept for backward: its first backward_layer
/// needs forward_again of the range before it, but for the range that ran last (Chen et al., arXiv:1604.06174).
/// REQUIRES: model, kernels and ledger outlive it.
class Network {
 public:
  /// What is kept in f32, f16 or bf16.
  struct Types {
    DType parameters = DType::f32;
    DType activations = DType::f32;
    DType gradients = DType::f32;
  };
  /// For batches of up to `max_batch` samples. `recomputed`: none, or ranges that cover all layers, ascending.
  /// `wanted`: by layer; empty: all, but for layer 0's dx. Throws usage where the layers do not fit each other.
  Network(const Model& model, Kernels& kernels, MemoryLedger& ledger, std::size_t max_batch, Types types,
          std::vector<Range> recomputed = {}, std::vector<Wanted> wanted = {});
  Network(const Model& model, Kernels& kernels, MemoryLedger& ledger, std::size_t max_batch)
      : Network(model, kernels, ledger, max_batch, Types()) {}
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The next batch has `batch` samples, 0 < batch <= max_batch.
  void begin(std::size_t batch);
  /// [batch, model.input_cols]; always f32.
  Matrix input() { return {activations_[0].as<float>().data(), shapes_[0].rows, shapes_[0].cols}; }
  /// [batch * model.rows_per_sample]
  std::span<std::int32_t> targets() { return {targets_.data(), batch_ * model_->rows_per_sample}; }
  ConstElements output_of(std::size_t layer) const { return activation(layer + 1); }

  std::size_t layers() const { return model_->layers.size(); }
  /// `buffers`: as Forward takes them.
  void forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training = true,
                     std::span<const std::span<float>> buffers = {});
  /// Layers whose forward has to run once more, in their order, before the layer's backward; empty: none.
  Range to_recompute(std::size_t layer) const;
  /// The loss, without a gradient: for evaluation.
  LossResult evaluate();
  /// The loss, and the gradient of scale * (its sum) that backward starts from.
  LossResult loss(float scale);
  /// Writes the layer's gradients. Layers go in descending order, each of which something is wanted once after `loss`.
  /// `gradients`: empty where they are not wanted.
  void backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                      std::span<const BoundGradient> gradients);

  /// Floating-point operations of forward and backward for a batch, as the layers state them.
  double flops(std::size_t batch) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  class Loan;

  Elements activation(std::size_t i) const { return activations_[i].subspan(0, shapes_[i].elements()); }
  /// Of activation i.
  Elements gradient(std::size_t i) const { return gradients_[i % 2].subspan(0, shapes_[i].elements()); }
  std::vector<Shape> shapes_for(std::size_t batch) const;
  std::span<float> scratch(std::size_t layer) const;
  std::span<float> saved(std::size_t layer) const;
  Elements saved_activations(std::size_t layer) const;
  Matrix matrix(std::span<float> values, std::size_t i) const;
  ConstMatrix matrix(std::span<const float> values, std::size_t i) const;
  std::span<const std::int32_t> wanted() const;

  const Model* model_;
  Kernels* kernels_;
  MemoryLedger* ledger_;
  std::size_t max_batch_;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> arena_;
  std::vector<Elements> activations_;        ///< by layer the input; the last is the model's output
  std::vector<std::span<float>> saved_;      ///< by layer
  std::vector<Elements> saved_activations_;  ///< by layer
  Elements gradients_[2];                    ///< by activations, in turn
  std::span<float> scratch_;
  std::span<float> copies_;  ///< what a layer is lent of what is not in f32
  std::vector<std::int32_t> targets_;
  std::vector<Range> recomputed_;
  std::vector<Wanted> wanted_;  ///< by layer
  std::size_t held_ = 0;        ///< the layer that ran forward last: what its range saved is there

  std::size_t batch_ = 0;
  std::vector<Shape> shapes_;  ///< of activations_, for this batch
};

}  // namespace psring::worker
