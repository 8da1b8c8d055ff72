#pragma once

#include <cstddef>

#include <psring/common/base/rng.h>
#include <psring/common/device/cuda/launch.h>

namespace psring::optim::cuda {

// The codecs of compression.h as kernels, with the same contract. Values are f32 and begin on multiples of 16 bytes,
// bytes on multiples of 4. REQUIRES: at least one value.

cudaError_t int8_encode(const psring::cuda::Queue& queue, ConstElements values, std::byte* out);
cudaError_t int8_decode(const psring::cuda::Queue& queue, const std::byte* in, Elements out);

cudaError_t sign_encode(const psring::cuda::Queue& queue, ConstElements values, std::byte* out);
cudaError_t sign_decode(const psring::cuda::Queue& queue, const std::byte* in, Elements out);

/// `scratch`: top_k_scratch(values.size(), kept) bytes, aligned to 16.
std::size_t top_k_scratch(std::size_t size, std::size_t kept);
cudaError_t top_k_encode(const psring::cuda::Queue& queue, ConstElements values, std::size_t kept, std::byte* out,
                         std::byte* scratch);
/// REQUIRES: `out` is zero.
cudaError_t top_k_decode(const psring::cuda::Queue& queue, const std::byte* in, std::size_t kept, Elements out);

cudaError_t random_k_encode(const psring::cuda::Queue& queue, ConstElements values, std::size_t kept,
                            const CounterRng& places, std::size_t begin, float factor, std::byte* out);
/// REQUIRES: `out` is zero.
cudaError_t random_k_decode(const psring::cuda::Queue& queue, const std::byte* in, std::size_t kept,
                            const CounterRng& places, std::size_t begin, Elements out);

}  // namespace psring::optim::cuda
