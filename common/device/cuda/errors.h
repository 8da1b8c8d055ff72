#pragma once

#include <source_location>

#include <cuda_runtime.h>

namespace psring::cuda {

/// Throws where a call failed: data where the device has no memory left, else bug; the line names the call, the error
/// and the place.
void check_call(cudaError_t error, const char* call,
                const std::source_location& place = std::source_location::current());

}  // namespace psring::cuda
