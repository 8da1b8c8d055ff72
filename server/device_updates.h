#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/optim/device_applier.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/optimizer.h>

namespace psring::server {

/// What a shard keeps and does on a device (--server-device cuda): its optimizer state, and the values that updates are
/// made of, in f32 where the job keeps them so. Workers' gradients are added up there, in their order, and what an
/// update gives is copied to the host, where pulls are answered. With the host's bits. Ranges are those of what is
/// trained of the shard.
class DeviceUpdates {
 public:
  struct Options {
    const optim::Optimizer* rule = nullptr;
    DType parameter_type = DType::f32;
    DType gradient_type = DType::f32;
    bool master_copy = false;      ///< of parameters narrower than f32
    std::size_t elements = 0;      ///< that are trained
    std::size_t largest = 0;       ///< of the ranges
    bool keeps_gradients = false;  ///< of all ranges until they are applied; else of one at a time
  };

  /// REQUIRES: a rule that is not layerwise; device and ledger outlive it.
  DeviceUpdates(Device& device, MemoryLedger& ledger, const Options& options);

  void begin_with(Range at, std::span<const float> values);
  void begin_with_state(std::size_t slot, Range at, std::span<const float> values);

  /// The range's gradient becomes the sum of these, of the host, in their order, times `scale`, rounded once; or with
  /// `added` that is added to it, rounded once more.
  void aggregate(std::span<const ConstElements> pushes, float scale, Range at, bool added);
  /// Of all gradients. REQUIRES: it keeps them.
  void add_square_sums(optim::ExactSum& sum);
  /// The update of the range by its gradient; `out`, of the host, gets the parameters.
  void apply(const optim::Update& update, Range at, Elements out);

  ConstElements values(Range at) { return kept().part(at); }
  ConstElements state(std::size_t slot, Range at) { return state_[slot].elements(DType::f32).part(at); }

 private:
  Elements kept() { return values_.elements(type_); }
  Elements gradient(Range at);
  Elements scratch(Buffer& of, DType type, Range at) { return of.elements(type).subspan(0, at.size()); }

  const Options options_;
  const DType type_;  ///< of the values that are kept
  const std::unique_ptr<optim::DeviceApplier> applier_;
  Buffer values_;
  Buffer state_[optim::Optimizer::kMaxSlots];
  Buffer gradients_;
  Buffer pushed_;      ///< by one worker, of one range
  Buffer sum_;         ///< in f32
  Buffer parameters_;  ///< of one range, where values are kept in f32 beside narrower ones
};

}  // namespace psring::server
