#pragma once

#include <memory>

#include <psring/optim/device_applier.h>

namespace psring::optim::cuda {

/// Implements make_device_applier.
std::unique_ptr<DeviceApplier> make_applier(Device& device);

}  // namespace psring::optim::cuda
