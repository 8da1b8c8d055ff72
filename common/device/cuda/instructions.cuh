#pragma once

#include <cstdint>

// Instructions that CUDA C++ has no function for (PTX ISA: ex2, cp.async).

namespace psring::cuda {

/// 2^x, to 2 units in the last place; 0 where the result has no normal f32.
__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

/// Starts to copy 16 bytes to shared memory. The copy is complete once copies_done has returned.
__device__ inline void copy_async(void* to, const void* from) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(at), "l"(from) : "memory");
}
/// Ends a group of this thread's copies.
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until all of this thread's groups are done, except the kLeft newest.
template <int kLeft>
__device__ inline void copies_done() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
}

}  // namespace psring::cuda
