#pragma once

// As the one beside the kernels, on the host; see cuda_runtime.h.

#include <cmath>
#include <cstring>

#include <cuda_runtime.h>

namespace psring::cuda {

inline float power_of_2(float x) { return std::exp2(x); }

inline void copy_async(void* to, const void* from) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) cuda_on_host::die("a copy to shared memory that is not aligned");
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) cuda_on_host::die("a copy of what is not aligned");
  std::memcpy(to, from, 16);
}
inline void end_copies() {}
template <int kLeft>
void copies_done() {}

}  // namespace psring::cuda
