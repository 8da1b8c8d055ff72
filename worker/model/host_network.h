#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// A network on the host's processor. Parameters, gradients and activations may be stored in 16 bits. Layers still
/// compute in f32: they read f32 copies, and their results are rounded once. Therefore every layer works in every
/// precision.
class HostNetwork final : public Network {
 public:
  /// The bytes of activations that a network with these options books. Throws usage if the layers' shapes do not match.
  static std::size_t booked_bytes(const Model& model, const Options& options);
  /// REQUIRES: model, kernels and ledger outlive the network.
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

  // A stage of a pipeline, see Options::in_flight.

  /// Selects the slot (< in_flight) of the micro-batch that all further calls concern: its activations, saved values
  /// and targets. All slots share the memory that backward needs only for itself.
  void select(std::size_t slot);
  /// The output of the stage before, which the caller writes in place of input(), if Model::stage_input is set.
  Elements stage_input() const { return activation(0); }
  /// The same of any slot, for a batch of max_batch samples.
  Elements stage_input_of(std::size_t slot) const;
  ConstElements stage_output() const { return activation(layers()); }
  /// Returns the gradient of stage_output, which the caller writes: takes the place of `loss`, and begins backward.
  Elements begin_backward();
  /// Returns the gradient of stage_input. REQUIRES: Options::input_gradient, and backward is through.
  ConstElements stage_input_gradient();

 private:
  /// Books `bytes_` for activations, in the lender's arena or in pages of its own.
  std::byte* take_memory(Arena* lender);
  /// The memory and the batch of one micro-batch in flight.
  struct Slot {
    std::vector<Elements> activations;
    std::vector<std::span<float>> saved;
    std::vector<Elements> saved_activations;
    std::vector<std::int32_t> targets;
    std::vector<float> target_values;
    std::size_t batch = 0;
    std::vector<Shape> shapes;
    Randomness randomness;
  };
  void exchange_with(Slot& slot);

  /// The places of all that a network keeps.
  struct Sizes {
    Places places;
    std::vector<Place> gradients;  ///< by slot
    Place scratch;
    Place copies;
    Place addend;
  };
  Sizes sizes() const;
  std::size_t copied_floats(std::size_t layer, std::span<const Shape> shapes) const;
  std::size_t addend_floats(std::span<const Shape> shapes) const;
  /// Gives each activation's gradient a slot, and returns the number of slots. A gradient lives from the backward of
  /// the activation's last reader to the backward of its layer.
  std::size_t assign_slots();

  struct Free {
    void operator()(std::byte* memory) const;
  };
  class Loan;
  class Inputs;
  class InputGradients;

  Elements activation(std::size_t i) const { return activations_[i].subspan(0, shapes_[i].elements()); }
  /// The gradient of activation i.
  Elements gradient(std::size_t i) const { return gradients_[slot_of_[i]].subspan(0, shapes_[i].elements()); }
  Shape x_shape(std::size_t layer) const { return shapes_[sources(layer).front()]; }
  std::span<float> scratch(std::size_t layer) const;
  std::span<float> saved(std::size_t layer) const;
  Elements saved_activations(std::size_t layer) const;
  Matrix matrix(std::span<float> values, std::size_t i) const;
  ConstMatrix matrix(std::span<const float> values, std::size_t i) const;
  Targets targets_of_batch();

  /// Knows sizes alone.
  HostNetwork(const Model& model, const Options& options);

  /// The type of the first activation.
  DType input_type() const { return model_->stage_input ? types_.activations : DType::f32; }

  const Types types_;
  const bool backward_;
  const std::size_t in_flight_;
  std::vector<Slot> slots_;   ///< of the micro-batches that are not selected; one is empty
  std::size_t selected_ = 0;  ///< the slot whose memory the members are
  Kernels* kernels_ = nullptr;
  MemoryLedger* ledger_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> arena_;
  Buffer lent_;                              ///< in place of arena_, if Options::arena gives the memory
  std::vector<Elements> activations_;        ///< input of each layer; the last is the model's output
  std::vector<std::span<float>> saved_;      ///< by layer
  std::vector<Elements> saved_activations_;  ///< by layer
  std::vector<Elements> gradients_;          ///< by slot
  std::vector<std::size_t> slot_of_;         ///< by activation
  std::deque<bool> unwritten_;               ///< by activation: no reader has written its gradient
  std::span<float> scratch_;
  std::span<float> addend_;  ///< the gradient of a layer that adds to the gradients of other readers
  std::span<float> copies_;  ///< f32 copies of values that are not stored in f32
  std::vector<std::int32_t> targets_;
  LossResult loss_;
};

}  // namespace psring::worker
