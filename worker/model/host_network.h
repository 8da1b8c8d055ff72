#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// A network on the host's processor. Parameters, gradients and activations may be kept in 16 bit. A layer computes in
/// f32 all the same: it is lent f32 copies of what it reads, and what it writes is rounded once. So every layer works
/// in every precision.
class HostNetwork final : public Network {
 public:
  /// REQUIRES: model, kernels and ledger outlive it.
  HostNetwork(const Model& model, Kernels& kernels, MemoryLedger& ledger, const Options& options);
  ~HostNetwork() override;

  Matrix input() override { return {activations_[0].as<float>().data(), shapes_[0].rows, shapes_[0].cols}; }
  std::span<std::int32_t> targets() override { return {targets_.data(), batch_ * model_->rows_per_sample}; }
  ConstElements output_of(std::size_t layer) const override { return activation(layer + 1); }

  void forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training = true,
                     std::span<const std::span<float>> buffers = {}) override;
  LossResult evaluate() override;
  std::optional<LossResult> loss(float scale) override;
  LossResult loss_after() override { return loss_; }
  void backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                      std::span<const BoundGradient> gradients) override;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  class Loan;

  Elements activation(std::size_t i) const { return activations_[i].subspan(0, shapes_[i].elements()); }
  /// Of activation i.
  Elements gradient(std::size_t i) const { return gradients_[i % 2].subspan(0, shapes_[i].elements()); }
  std::span<float> scratch(std::size_t layer) const;
  std::span<float> saved(std::size_t layer) const;
  Elements saved_activations(std::size_t layer) const;
  Matrix matrix(std::span<float> values, std::size_t i) const;
  ConstMatrix matrix(std::span<const float> values, std::size_t i) const;
  std::span<const std::int32_t> wanted() const;

  Kernels* kernels_;
  MemoryLedger* ledger_;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> arena_;
  std::vector<Elements> activations_;        ///< by layer the input; the last is the model's output
  std::vector<std::span<float>> saved_;      ///< by layer
  std::vector<Elements> saved_activations_;  ///< by layer
  Elements gradients_[2];                    ///< by activations, in turn
  std::span<float> scratch_;
  std::span<float> copies_;  ///< what a layer is lent of what is not in f32
  std::vector<std::int32_t> targets_;
  LossResult loss_;
};

}  // namespace psring::worker
