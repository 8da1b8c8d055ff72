#pragma once

#include <memory>
#include <span>

#include <psring/common/base/elements.h>
#include <psring/common/device/device.h>
#include <psring/optim/optimizer.h>

namespace psring::optim {

class ExactSum;

/// As MixedRange, in a device's memory. Empty: master, and slots that the rule has not.
struct DeviceRange {
  ConstElements parameters;
  ConstElements gradient;
  Elements master;
  Elements slot[Optimizer::kMaxSlots];
  Elements out;
};

/// Updates in a device's memory, with the host's arithmetic (formula.h): the same bits.
class DeviceApplier {
 public:
  virtual ~DeviceApplier() = default;

  /// As optim::apply (mixed.h); queued.
  virtual void apply(const Formula& formula, const DeviceRange& range) = 0;
  /// block_square_sum (norm.h) of each block of kCut elements, the last perhaps shorter; waits for them.
  virtual void square_sums(ConstElements values, std::span<double> sums) = 0;
};

/// add_square_sum (mixed.h) of elements that lie where `applier` updates; null: on the host. The bits are the same.
void add_square_sum(ConstElements values, ExactSum& sum, DeviceApplier* applier);

/// REQUIRES: the device outlives it.
std::unique_ptr<DeviceApplier> make_device_applier(Device& device);

}  // namespace psring::optim
