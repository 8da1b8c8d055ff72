#pragma once

#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Operations of the matrix units. All lanes of a warp call them (PTX ISA: mma.m16n8k16, ldmatrix, cp.async). With g = l
// / 4 and t = l % 4, lane l holds these elements of a 16-bit or f32
//   16 x 16 left operand:  (g, 2t..2t+1), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)
//   16 x 8 right operand:  (2t..2t+1, g), (2t + 8.., g)
//   16 x 8 sum:            (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)

namespace psring::cuda {

/// sum += left right.
__device__ inline void multiply_add(float (&sum)[4], const std::uint32_t (&left)[4], const std::uint32_t (&right)[2],
                                    __nv_bfloat16 /*type*/) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
__device__ inline void multiply_add(float (&sum)[4], const std::uint32_t (&left)[4], const std::uint32_t (&right)[2],
                                    __half /*type*/) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// Loads four 8 x 8 matrices of 16-bit numbers from shared memory. Lane l passes the start of row l % 8 of matrix l /
/// 8, aligned to 16 bytes. It receives the elements (g, 2t) and (g, 2t + 1) of matrix i in to[i].
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
/// The same, but each lane receives the elements (2t, g) and (2t + 1, g) of matrix i.
__device__ inline void load_transposed(std::uint32_t (&to)[4], const void* row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

/// Packs two numbers, rounded to the nearest, into an operand.
__device__ inline std::uint32_t pair_of(float first, float second, __nv_bfloat16 /*type*/) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
__device__ inline std::uint32_t pair_of(float first, float second, __half /*type*/) {
  const __half2 pair = __floats2half2_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

/// Starts to copy 16 bytes, or one float, to shared memory; writes zeros if `there` is false. The copy is complete once
/// copies_done has returned.
__device__ inline void copy_async(void* to, const void* from, bool there) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void copy_float_async(float* to, const float* from, bool there) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
/// Ends a group of this thread's copies.
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until all of this thread's groups are done, except the kLeft newest.
template <int kLeft>
__device__ inline void copies_done() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
}

}  // namespace psring::cuda
