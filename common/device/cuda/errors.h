#pragma once

#include <source_location>

#include <cuda_runtime.h>

namespace psring::cuda {

/// Throws if a call failed: data if the device is out of memory, else bug. The line names the call, the error and the
/// place in the code.
void check_call(cudaError_t error, const char* call,
                const std::source_location& place = std::source_location::current());

}  // namespace psring::cuda
