#pragma once

/// Marks a function that both the host and GPU kernels call, so that both use the same arithmetic.
#ifdef __CUDACC__
#define PSRING_HOST_DEVICE __host__ __device__
#else
#define PSRING_HOST_DEVICE
#endif
