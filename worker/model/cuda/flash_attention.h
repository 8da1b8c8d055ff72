#pragma once

#include <psring/worker/model/cuda/kernels.h>

namespace psring::worker::cuda {

// Attention on the matrix units, for 16-bit types and heads of 64 or 128 columns (Dao, "FlashAttention-2",
// arXiv:2307.08691). Backward has two kernels: one walks over the queries for each block of keys, the other over the
// keys for each block of queries. Each sum then has one owner and a fixed order, so that every run gives the same bits,
// at the cost of seven matrix products instead of five.

bool flash_fits(const AttentionShape& shape, DType type);

cudaError_t flash_attention(const Queue& queue, const AttentionShape& shape, ConstElements qkv, Elements out,
                            float* log_sums);
/// `delta`: the dot product of out and d_out for each row and head.
cudaError_t flash_attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv,
                                     const float* log_sums, ConstElements d_out, const float* delta, Elements d_qkv);

}  // namespace psring::worker::cuda
