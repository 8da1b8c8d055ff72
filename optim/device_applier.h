#pragma once

#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/device/device.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/updater.h>

namespace psring::optim {

/// A MixedRange (mixed.h) in a device's memory. Empty are: `master` without master weights, and slots that the rule
/// does not have.
struct DeviceRange {
  ConstElements parameters;
  ConstElements gradient;
  Elements master;
  Elements slot[Optimizer::kMaxSlots];
  Elements out;
};

/// Updates parameters in a device's memory with the host's arithmetic (formula.h): the bits are the same.
class DeviceApplier {
 public:
  virtual ~DeviceApplier() = default;

  /// Queues optim::apply (mixed.h).
  virtual void apply(const Formula& formula, const DeviceRange& range) = 0;
  /// Returns block_square_sum (norm.h) of each block of kCut elements of each vector, one vector after another; the
  /// last block of a vector may be shorter. Waits for the device. The result is valid until the next call.
  virtual std::span<const double> square_sums(std::span<const ConstElements> vectors) = 0;
};

/// Calls add_square_sum (mixed.h) for all vectors, which lie in the memory of `applier`, or in the host's memory if it
/// is null. The bits are the same.
void add_square_sums(std::span<const ConstElements> vectors, ExactSum& sum, DeviceApplier* applier);

/// layerwise_sums and scale_layerwise (updater.h) for f32 elements in the device's memory. `out` may have a narrower
/// type; then `kept` receives the values before rounding. The bits equal the host's, except that padding is not
/// changed.
std::vector<TensorSums> layerwise_sums(DeviceApplier& applier, std::span<const TensorLayout> tensors, Range range,
                                       ConstElements parameters, ConstElements direction);
void scale_layerwise(DeviceApplier& applier, float lr, std::span<const TensorLayout> tensors, Range range,
                     std::span<const float> ratios, ConstElements direction, Elements kept, Elements out);

/// REQUIRES: the device outlives the applier.
std::unique_ptr<DeviceApplier> make_device_applier(Device& device);

}  // namespace psring::optim
