#pragma once

#include <cuda_runtime.h>

namespace psring::cuda {

/// Returns the dynamic shared memory of the block, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

}  // namespace psring::cuda
