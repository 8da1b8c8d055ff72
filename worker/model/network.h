#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Runs a model on one batch after another, layer by layer, in activations that are allocated once and booked as
/// Category::activations. Order of a batch: begin, fill input() and targets(), forward of layer 0 to the last,
/// loss; to train, then backward of the last layer to 0. One object serves one thread.
/// REQUIRES: model, kernels and ledger outlive it.
class Network {
 public:
  /// For batches of up to `max_batch` samples. Throws usage where the layers do not fit each other.
  Network(const Model& model, Kernels& kernels, MemoryLedger& ledger, std::size_t max_batch);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// The next batch has `batch` samples, 0 < batch <= max_batch.
  void begin(std::size_t batch);
  /// [batch, model.input_cols]
  Matrix input() { return activation(0); }
  /// [batch * model.rows_per_sample]
  std::span<std::int32_t> targets() { return {targets_.data(), batch_ * model_->rows_per_sample}; }
  /// Of the last layer.
  ConstMatrix output() const { return activation(shapes_.size() - 1); }
  ConstMatrix output_of(std::size_t layer) const { return activation(layer + 1); }

  std::size_t layers() const { return model_->layers.size(); }
  /// `buffers`: as Forward takes them.
  void forward_layer(std::size_t layer, std::span<const std::span<const float>> parameters, bool training = true,
                     std::span<const std::span<float>> buffers = {});
  /// The loss, without a gradient: for evaluation.
  LossResult evaluate() const;
  /// The loss, and the gradient of scale * (its sum) that backward starts from.
  LossResult loss(float scale);
  /// Writes the layer's gradients. Layers go in descending order, each once after `loss`; layer 0 computes no dx.
  void backward_layer(std::size_t layer, std::span<const std::span<const float>> parameters,
                      std::span<const Gradient> gradients);

  /// Floating-point operations of forward and backward for a batch, as the layers state them.
  double flops(std::size_t batch) const;

 private:
  struct Free {
    void operator()(float* memory) const;
  };

  Matrix activation(std::size_t i) const { return {activations_[i], shapes_[i].rows, shapes_[i].cols}; }
  std::vector<Shape> shapes_for(std::size_t batch) const;
  std::span<float> scratch(std::size_t layer) const;
  std::span<float> saved(std::size_t layer) const;
  std::span<const std::int32_t> wanted() const;
  Matrix gradient(std::size_t i) const;

  const Model* model_;
  Kernels* kernels_;
  MemoryLedger* ledger_;
  std::size_t max_batch_;
  std::size_t bytes_ = 0;
  std::unique_ptr<float[], Free> arena_;
  std::vector<float*> activations_;  ///< by layer the input; the last is the model's output
  std::vector<float*> saved_;        ///< by layer
  float* gradients_[2] = {};         ///< of activation i in gradients_[i % 2]
  float* scratch_ = nullptr;
  std::vector<std::int32_t> targets_;

  std::size_t batch_ = 0;
  std::vector<Shape> shapes_;  ///< of activations_, for this batch
};

}  // namespace psring::worker
