#pragma once

#include <cstddef>
#include <memory>

#include <psring/common/device/cuda/launch.h>
#include <psring/common/device/cuda/pool.h>
#include <psring/common/device/device.h>

namespace psring::cuda {

/// As cuda_devices says.
std::size_t devices();

/// As make_cuda_device says: here is where it is made.
std::unique_ptr<Device> make_device(std::size_t index);

/// Where its work is queued, with all that it was told so far: to be asked for anew after each call of the device.
/// REQUIRES: make_device made it.
const Queue& queue_of(Device& device);

/// Where its memory comes from. REQUIRES: make_device made it.
Pool& pool_of(Device& device);

}  // namespace psring::cuda
