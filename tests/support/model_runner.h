#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <psring/common/base/rng.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/layers/layer_buffers.h>

namespace psring::test {

/// A model with buffers and random samples of its own, run in one process. Parameters and gradients read as one
/// vector: the tensors in the model's order, without padding.
class ModelRunner {
 public:
  ModelRunner(const worker::Model& model, std::size_t samples)
      : model_(model),
        flat_(model, worker::group_layers(model, "layer")),
        binding_(flat_),
        buffers_(model, worker::buffer_layout(model), ledger_),
        kernels_(make_cpu_kernels()),
        network_(model, *kernels_, ledger_, {.max_batch = samples}),
        x_(samples * model.input_cols),
        targets_(samples * model.rows_per_sample),
        target_values_(targets_.size() * model.target_cols) {
    const Layout layout = flat_.layout(1);
    for (std::size_t unit = 0; unit < flat_.units(); ++unit) {
      parameters_.emplace_back(layout.units[unit].elements);
      gradients_.emplace_back(layout.units[unit].elements);
      initialise(layout.units[unit], {0, layout.units[unit].elements}, 1, parameters_.back());
      binding_.bind_parameters(unit, parameters_.back());
      binding_.bind_gradients(unit, gradients_.back());
    }
  }

  void randomise(std::size_t classes, std::uint64_t seed) {
    const CounterRng rng({.seed = seed});
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = rng.normal(i);
    if (classes > 0)
      for (std::size_t i = 0; i < targets_.size(); ++i)
        targets_[i] = static_cast<std::int32_t>(rng.bits(x_.size() + i) % classes);
    for (std::size_t i = 0; i < target_values_.size(); ++i) target_values_[i] = rng.normal(x_.size() + i);
  }
  /// The same for a model of tokens.
  void randomise_tokens(std::size_t vocab, std::uint64_t seed) {
    randomise(vocab, seed);
    const CounterRng rng({.seed = seed + 1});
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(rng.bits(i) % vocab);
  }
  const std::vector<float>& x() const { return x_; }
  const std::vector<std::int32_t>& targets() const { return targets_; }
  const std::vector<float>& target_values() const { return target_values_; }

  /// Forward, loss and backward of samples [first, first + count); `fresh`: into gradients that start anew.
  worker::LossResult train(std::size_t first, std::size_t count, float scale, bool fresh) {
    if (fresh) binding_.reset_fresh();
    forward(first, count, true);
    const worker::LossResult result = *network_.loss(scale);
    for (std::size_t i = network_.layers(); i-- > 0;)
      network_.backward_layer(i, binding_.parameters(i), binding_.gradients(i));
    return result;
  }

  std::vector<float> parameters() { return read(parameters_); }
  /// The tensors, in the order of parameters() and gradient().
  std::vector<TensorSpec> tensors() const {
    std::vector<TensorSpec> list;
    for (std::size_t unit = 0; unit < flat_.units(); ++unit)
      for (const TensorLayout& tensor : flat_.tensors(unit)) list.push_back(tensor.spec);
    return list;
  }
  /// Adds `step` times the gradient to the parameters.
  void descend(float step) {
    const std::vector<float*> to = places(parameters_);
    const std::vector<float*> by = places(gradients_);
    for (std::size_t i = 0; i < to.size(); ++i) *to[i] += step * *by[i];
  }
  std::vector<float> gradient() { return read(gradients_); }
  /// The buffers of a layer, in the order of its buffers().
  worker::LayerBuffers::List buffers(std::size_t layer) const { return buffers_.of(layer); }
  worker::LossResult evaluate(std::size_t first, std::size_t count) {
    forward(first, count, false);
    return network_.evaluate();
  }
  /// The sum of the loss over all samples where parameter `index` is moved by `delta`.
  double loss_at(std::size_t index, float delta) {
    std::vector<float*> all = places(parameters_);
    const float before = *all[index];
    *all[index] += delta;
    forward(0, x_.size() / model_.input_cols, true);
    const double loss = network_.evaluate().loss_sum;
    *all[index] = before;
    return loss;
  }

 private:
  void forward(std::size_t first, std::size_t count, bool training) {
    network_.begin(count);
    std::copy_n(x_.begin() + first * model_.input_cols, network_.input().size(), network_.input().data);
    std::copy_n(targets_.begin() + first * model_.rows_per_sample, network_.targets().size(),
                network_.targets().begin());
    const std::size_t rows = first * model_.rows_per_sample;
    std::copy_n(target_values_.begin() + static_cast<std::ptrdiff_t>(rows * model_.target_cols),
                network_.target_values().size(), network_.target_values().data);
    for (std::size_t i = 0; i < network_.layers(); ++i)
      network_.forward_layer(i, binding_.parameters(i), training, buffers_.of(i));
  }

  std::vector<float*> places(std::vector<std::vector<float>>& buffers) const {
    std::vector<float*> list;
    for (std::size_t unit = 0; unit < flat_.units(); ++unit)
      for (const TensorLayout& tensor : flat_.tensors(unit))
        for (std::size_t i = 0; i < tensor.spec.elements(); ++i) list.push_back(&buffers[unit][tensor.offset + i]);
    return list;
  }
  std::vector<float> read(std::vector<std::vector<float>>& buffers) const {
    std::vector<float> values;
    for (const float* place : places(buffers)) values.push_back(*place);
    return values;
  }

  const worker::Model& model_;
  MemoryLedger ledger_;
  worker::FlatModel flat_;
  worker::Binding binding_;
  worker::LayerBuffers buffers_;
  std::unique_ptr<Kernels> kernels_;
  worker::HostNetwork network_;
  std::vector<float> x_;
  std::vector<std::int32_t> targets_;
  std::vector<float> target_values_;
  std::vector<std::vector<float>> parameters_;
  std::vector<std::vector<float>> gradients_;
};

}  // namespace psring::test
