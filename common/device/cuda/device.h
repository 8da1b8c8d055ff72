#pragma once

#include <cstddef>
#include <memory>

#include <psring/common/device/cuda/launch.h>
#include <psring/common/device/cuda/pool.h>
#include <psring/common/device/device.h>

namespace psring::cuda {

/// Implements cuda_devices.
std::size_t devices();

/// Implements make_cuda_device.
std::unique_ptr<Device> make_device(std::size_t index);

/// Returns the device's queue after launching all pending kernels. Call it again after each call of the device.
/// REQUIRES: make_device made the device.
const Queue& queue_of(Device& device);

/// Returns the pool that the device's memory comes from. REQUIRES: make_device made the device.
Pool& pool_of(Device& device);

}  // namespace psring::cuda
