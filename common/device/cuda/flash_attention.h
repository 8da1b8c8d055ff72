#pragma once

#include <psring/common/device/cuda/launch.h>

namespace psring::cuda {

// Attention on the matrix units, for 16-bit types and heads of 64 or 128 columns (Dao, "FlashAttention-2",
// arXiv:2307.08691). Backward is two kernels, one that goes along the queries of a block of keys and one the other way
// round, so that each sum has one owner and one order: seven products instead of five, and the same bits in each run.

bool flash_fits(const AttentionShape& shape, DType type);

cudaError_t flash_attention(const Queue& queue, const AttentionShape& shape, ConstElements qkv, Elements out,
                            float* log_sums);
/// `delta`: of each row and head the dot product of out and d_out.
cudaError_t flash_attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv,
                                     const float* log_sums, ConstElements d_out, const float* delta, Elements d_qkv);

}  // namespace psring::cuda
