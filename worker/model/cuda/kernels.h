#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/device/cuda/launch.h>
#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker::cuda {

// The layers' kernels, launched on a stream. Pointers are the device's. The contracts of TensorKernels apply. A type
// that no kernel was compiled for returns kNoKernel.

using namespace psring::cuda;

cudaError_t gelu(const Queue& queue, ConstElements x, Elements y);
cudaError_t slope(const Queue& queue, TensorKernels::Slope slope, ConstElements value, ConstElements dy, Elements dx);
/// values = then(values + added + bias), the part of a product that cuBLASLt did not fuse. The input of a GELU is
/// written to `kept`.
cudaError_t finish_product(const Queue& queue, Rows shape, const Product& product);

/// Elements in two numbers: the first tells apart other bits; the second counts the elements that are neither 0 nor
/// infinite nor NaN.
struct Digest {
  std::uint64_t bits = 0;
  std::uint64_t numbers = 0;
};
/// Writes the digests of kDigestParts parts on the device; the elements' is their sum.
inline constexpr unsigned kDigestParts = 256;
cudaError_t digest(const Queue& queue, ConstElements elements, Digest* parts);

/// Returns the floats of scratch memory that sums over rows need, and a layer norm's backward pass.
std::size_t column_scratch(Rows shape);
std::size_t norm_scratch(Rows shape);
cudaError_t column_sums(const Queue& queue, Rows shape, ConstElements dy, float beta, Elements into, float* scratch);
/// into = beta * into + the sum of the rows of `sums`.
cudaError_t sum_chunks(const Queue& queue, Rows chunks, const float* sums, float beta, Elements into);

cudaError_t layer_norm(const Queue& queue, Rows shape, ConstElements x, ConstElements weight, ConstElements bias,
                       float* saved, Elements y, bool again);
/// `scratch`: norm_scratch(shape).
cudaError_t layer_norm_backward(const Queue& queue, Rows shape, ConstElements x, ConstElements weight,
                                const float* saved, ConstElements dy, ConstElements residual, Elements dx,
                                const TensorKernels::NormGradients& gradients, float* scratch);

cudaError_t attention(const Queue& queue, const AttentionShape& shape, ConstElements qkv, Elements out,
                      float* log_sums);
/// `scratch`: one float per row and head.
cudaError_t attention_backward(const Queue& queue, const AttentionShape& shape, ConstElements qkv, ConstElements out,
                               const float* log_sums, ConstElements d_out, Elements d_qkv, float* scratch);

cudaError_t embedding(const Queue& queue, Rows shape, std::size_t context, const std::int32_t* ids,
                      ConstElements tokens, ConstElements places, Elements y);
cudaError_t embedding_tokens(const Queue& queue, Rows shape, const TokenRows& tokens, ConstElements dy,
                             Elements d_tokens);
cudaError_t embedding_places(const Queue& queue, Rows shape, std::size_t context, ConstElements dy, Elements d_places,
                             float beta);

/// `scratch`: two floats per row.
cudaError_t loss(const Queue& queue, Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums,
                 float* scratch);

}  // namespace psring::worker::cuda
