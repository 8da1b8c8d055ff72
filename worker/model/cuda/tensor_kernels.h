#pragma once

#include <memory>

#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker::cuda {

/// Implements worker::make_tensor_kernels.
std::unique_ptr<TensorKernels> make_tensor_kernels(Device& device);

}  // namespace psring::worker::cuda
