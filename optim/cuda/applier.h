#pragma once

#include <memory>

#include <psring/optim/device_applier.h>

namespace psring::optim::cuda {

/// As make_device_applier says: here is where it is made.
std::unique_ptr<DeviceApplier> make_applier(Device& device);

}  // namespace psring::optim::cuda
