#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/optim/device_applier.h>
#include <psring/server/shard_options.h>
#include <psring/server/store/applier.h>

namespace psring::server {

/// Applies updates on a device (--server-device cuda). Optimizer state, mean gradients, and the values that updates
/// read lie on the device: the f32 copy of the parameters or, without one, the parameters. Workers' gradients are
/// copied to the device one after the other, and the updated parameters are copied back to the host, where pulls are
/// answered.
class DeviceApplier final : public Applier {
 public:
  /// `largest`: elements of the largest piece. REQUIRES: an optimizer that is not layerwise; options, ledger and the
  /// options' device outlive this.
  DeviceApplier(const ShardOptions& options, const Layout& layout, std::size_t largest, MemoryLedger& ledger);

  void begin_with(Range place, std::span<const float> values) final;
  void begin_with_state(std::size_t slot, Range place, std::span<const float> values) final;
  void apply_pushed(std::span<const ConstElements> gradients, const PieceUpdate& update) final;
  void add_to_mean(std::span<const ConstElements> gradients, Range place, bool first) final;
  void apply_mean(const PieceUpdate& update) final;
  void add_square_sums(optim::ExactSum& sum) final;
  Elements mean(Range place) final;
  Elements master(Range place) final { return master_copy_ ? values(place) : Elements(); }
  Elements state(std::size_t slot, Range place) final { return state_[slot].elements(DType::f32).part(place); }

 private:
  Elements values(Range place) { return values_.elements(value_type_).part(place); }
  Elements scratch(Buffer& buffer, DType type, Range place) { return buffer.elements(type).subspan(0, place.size()); }

  const ShardOptions& options_;
  const DType parameter_type_;
  const DType gradient_type_;
  const bool master_copy_;
  const bool keeps_mean_;
  const DType value_type_;
  const std::unique_ptr<optim::DeviceApplier> applier_;
  Buffer values_;
  Buffer state_[optim::Optimizer::kMaxSlots];
  Buffer gradients_;   ///< the step's mean gradients, if they are kept; otherwise the mean gradient of one piece
  Buffer pushed_;      ///< one worker's gradient of one piece
  Buffer sum_;         ///< the f32 sum of one piece's gradients
  Buffer parameters_;  ///< one piece's updated parameters, if values_ are f32 copies of narrower ones
};

}  // namespace psring::server
