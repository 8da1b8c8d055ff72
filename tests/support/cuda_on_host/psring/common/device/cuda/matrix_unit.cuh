#pragma once

// As the one beside the kernels, on the host; see cuda_runtime.h.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <psring/common/device/cuda/numbers.cuh>

namespace psring::cuda {

template <class T>
void multiply_add(float (&sum)[4], const std::uint32_t (&left)[4], const std::uint32_t (&right)[2], T) {
  struct Operands {
    const std::uint32_t* left;
    const std::uint32_t* right;
  };
  const auto value = [](std::uint32_t pair, unsigned i) {
    return to_float(T{static_cast<std::uint16_t>(pair >> (16 * i))});
  };
  const unsigned lane = cuda_on_host::lane();
  const unsigned g = lane / 4;
  const unsigned t = lane % 4;
  const Operands mine{left, right};
  const auto of = cuda_on_host::show(mine);
  for (unsigned k = 0; k < 16; ++k) {
    // (row, k) of the left operand, and (k, column) of the right one, lie with other lanes.
    const unsigned half = k / 8;
    const std::uint32_t* const row = of(g * 4 + k % 8 / 2).left;
    const float upper = value(row[2 * half], k % 2);
    const float lower = value(row[2 * half + 1], k % 2);
    for (unsigned j = 0; j < 2; ++j) {
      const float factor = value(of((2 * t + j) * 4 + k % 8 / 2).right[half], k % 2);
      sum[j] += upper * factor;
      sum[2 + j] += lower * factor;
    }
  }
  cuda_on_host::warp_barrier();
}

inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const unsigned lane = cuda_on_host::lane();
  const auto of = cuda_on_host::show(row);
  for (unsigned i = 0; i < 4; ++i)
    std::memcpy(&to[i], static_cast<const std::byte*>(of(i * 8 + lane / 4)) + lane % 4 * 4, 4);
  cuda_on_host::warp_barrier();
}

inline void load_transposed(std::uint32_t (&to)[4], const void* row) {
  const unsigned lane = cuda_on_host::lane();
  const auto of = cuda_on_host::show(row);
  for (unsigned i = 0; i < 4; ++i) {
    to[i] = 0;
    for (unsigned j = 0; j < 2; ++j) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const std::byte*>(of(i * 8 + lane % 4 * 2 + j)) + lane / 4 * 2, 2);
      to[i] |= std::uint32_t{bits} << (16 * j);
    }
  }
  cuda_on_host::warp_barrier();
}

template <class T>
std::uint32_t pair_of(float first, float second, T) {
  return from_float<T>(first).bits | std::uint32_t{from_float<T>(second).bits} << 16;
}

inline void copy_float_async(float* to, const float* from, bool there) { *to = there ? *from : 0.0F; }
inline void copy_async(void* to, const void* from, bool there) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) cuda_on_host::die("a copy to shared memory that is not aligned");
  if (there && reinterpret_cast<std::uintptr_t>(from) % 16 != 0) cuda_on_host::die("a copy of what is not aligned");
  there ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
}
inline void end_copies() {}
template <int kLeft>
void copies_done() {}

}  // namespace psring::cuda
