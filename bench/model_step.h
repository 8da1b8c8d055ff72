#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/host_network.h>

namespace psring::bench {

/// A model with parameters, gradients and one random batch, which computes steps. Each bag of a table has one key,
/// which no other bag has.
class ModelStep {
 public:
  /// `type`: of parameters, activations and gradients. REQUIRES: the model outlives it.
  ModelStep(const worker::Model& model, std::size_t batch, DType type = DType::f32, std::size_t threads = 1);

  /// Computes a step, and returns the sum of the losses.
  double run();
  double flops(std::size_t batch) const { return network_.flops(batch); }

  // The parts of `run`, in its order.
  void begin() { binding_.reset_fresh(); }
  std::size_t layers() const { return network_.layers(); }
  void forward(std::size_t layer) { network_.forward_layer(layer, binding_.parameters(layer)); }
  double loss() { return network_.loss(scale_)->loss_sum; }
  void backward(std::size_t layer) {
    network_.backward_layer(layer, binding_.parameters(layer), binding_.gradients(layer));
  }

 private:
  void add_tables(const worker::Model& model, std::size_t batch);

  MemoryLedger ledger_;
  worker::FlatModel flat_;
  worker::Binding binding_;
  std::unique_ptr<Kernels> kernels_;
  worker::HostNetwork network_;
  float scale_;
  std::vector<std::vector<std::byte>> parameters_;
  std::vector<std::vector<std::byte>> gradients_;
  struct Table {
    std::vector<float> rows;
    std::vector<float> gradients;
    std::vector<std::uint32_t> offsets;
    std::vector<std::uint32_t> lookups;
  };
  std::vector<Table> tables_;
};

}  // namespace psring::bench
