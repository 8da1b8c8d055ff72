#pragma once

#include <cuda_runtime.h>

namespace psring::cuda {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cuda_on_host::dynamic_shared());
}

}  // namespace psring::cuda
