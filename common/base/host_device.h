#pragma once

/// Of a function that the host and a GPU's kernels call: one arithmetic for both.
#ifdef __CUDACC__
#define PSRING_HOST_DEVICE __host__ __device__
#else
#define PSRING_HOST_DEVICE
#endif
