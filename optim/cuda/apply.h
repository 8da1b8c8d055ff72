#pragma once

#include <psring/common/device/cuda/launch.h>
#include <psring/optim/device_applier.h>

namespace psring::optim::cuda {

cudaError_t apply(const psring::cuda::Queue& queue, const Formula& formula, const DeviceRange& range);
/// `sums`: in the device's memory.
cudaError_t square_sums(const psring::cuda::Queue& queue, ConstElements values, double* sums);

}  // namespace psring::optim::cuda
