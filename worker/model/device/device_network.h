#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/worker/model/device/device_layer.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// Throws usage if a layer, the loss or a metric of the model has no implementation for devices, or if the model has
/// branches.
void check_on_device(const Model& model);

/// A network on a device. It queues the work of a pass, and waits only for two things: for the copy of the batch before
/// the last, and for a loss when it is read. The gradient of the model's output overwrites the output.
class DeviceNetwork final : public Network {
 public:
  /// `kernels`: the layers' kernels; null: the kernels of make_tensor_kernels. Throws usage if a layer or the loss has
  /// no implementation for devices. REQUIRES: model, device, ledger and kernels outlive the network.
  DeviceNetwork(const Model& model, Device& device, MemoryLedger& ledger, const Options& options,
                TensorKernels* kernels = nullptr);

  void begin(std::size_t batch, const Randomness& randomness = {}) override;
  Matrix input() override { return {input_.data(), shapes_[0].rows, shapes_[0].cols}; }
  std::span<std::int32_t> targets() override { return {targets_.data(), batch_ * model_->rows_per_sample}; }
  ConstElements output_of(std::size_t layer) const override { return activation(layer + 1); }

  void forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training = true,
                     std::span<const std::span<float>> buffers = {}) override;
  LossResult evaluate() override;
  std::optional<LossResult> loss(float scale) override;
  LossResult loss_after() override;
  void backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                      std::span<const BoundGradient> gradients) override;

 private:
  /// The layout of a batch in one buffer on the device: offsets in bytes.
  struct Batch {
    std::size_t values = 0;  ///< inputs as activations, or token ids as i32
    std::size_t targets = 0;
    std::size_t distinct = 0;  ///< from here on, the arrays of TokenRows
    std::size_t ids = 0;
    std::size_t begin = 0;
    std::size_t rows = 0;
    std::size_t bytes = 0;
  };
  /// Pinned memory. The device has finished reading it once the queue has reached the mark.
  struct StagingBuffer {
    std::shared_ptr<std::byte> memory;
    Device::Mark read = 0;
  };

  void upload();
  void check_targets() const;
  void sort_tokens(std::byte* to);
  DeviceTokens tokens() const;
  const std::int32_t* on_device(std::size_t offset) const;
  Elements at(const Place& place) const;
  Elements activation(std::size_t i) const { return activations_[i].subspan(0, shapes_[i].elements()); }
  Elements gradient(std::size_t i) const;
  float* saved(std::size_t layer) const { return reinterpret_cast<float*>(saved_[layer].data()); }
  Elements first(const Elements& elements, std::size_t count) const { return elements.subspan(0, count); }

  Device& device_;
  const std::unique_ptr<TensorKernels> own_kernels_;  ///< null if the caller gave kernels
  TensorKernels& kernels_;
  const DType type_;                                 ///< of activations
  std::vector<std::unique_ptr<DeviceLayer>> forms_;  ///< by layer
  Loss::OnDevice loss_form_;
  Buffer memory_;
  std::vector<Elements> activations_;
  std::vector<Elements> saved_;
  std::vector<Elements> saved_activations_;
  Elements gradients_[2];
  Elements scratch_;

  std::vector<float> input_;  ///< on the host
  std::vector<std::int32_t> targets_;
  Batch places_;
  Buffer on_device_;
  StagingBuffer staging_[2];
  std::size_t turn_ = 0;
  bool uploaded_ = false;

  Buffer sums_;                        ///< LossSums
  std::shared_ptr<std::byte> result_;  ///< the host may read the result after the mark
  Device::Mark loss_mark_ = 0;
};

}  // namespace psring::worker
