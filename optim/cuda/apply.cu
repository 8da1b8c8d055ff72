#include <psring/common/base/range.h>
#include <psring/common/device/cuda/map.cuh>
#include <psring/optim/cuda/apply.h>

// Compiled without fused multiply-add, so that the bits equal the host's.

namespace psring::optim::cuda {
namespace {

using psring::cuda::from_float;
using psring::cuda::kGroup;
using psring::cuda::kMapThreads;
using psring::cuda::to_float;

template <class P, class G>
struct Operands {
  std::size_t size;
  const P* parameters;
  const G* gradient;
  float* master;  ///< may be null
  float* first;
  float* second;
  P* out;
};

/// All arrays are aligned to 16 bytes, like the ranges of a unit.
template <Rule kRule, class P, class G>
__global__ void apply_kernel(Formula f, Operands<P, G> at) {
  auto group = psring::cuda::Group<psring::cuda::kRun<P, G, float>>::of_thread();
  for (; group.begin < at.size; group.next()) {
    if (group.is_whole(at.size)) {
      float w[kGroup];
      float g[kGroup];
      float first[kGroup] = {};
      float second[kGroup] = {};
      if (at.master != nullptr)
        group.load(at.master, w);
      else
        group.load(at.parameters, w);
      group.load(at.gradient, g);
      if constexpr (slots_of(kRule) > 0) group.load(at.first, first);
      if constexpr (slots_of(kRule) > 1) group.load(at.second, second);
      for (unsigned j = 0; j < kGroup; ++j) w[j] = updated<kRule>(f, w[j], g[j], first[j], second[j]);
      if constexpr (slots_of(kRule) > 0) group.store(first, at.first);
      if constexpr (slots_of(kRule) > 1) group.store(second, at.second);
      if (at.master != nullptr) group.store(w, at.master);
      group.store(w, at.out);
    } else {
      for (unsigned n = 0; n < kGroup; ++n) {
        const std::size_t j = group.place(n);
        if (j >= at.size) continue;
        float a = slots_of(kRule) > 0 ? at.first[j] : 0;
        float b = slots_of(kRule) > 1 ? at.second[j] : 0;
        const float before = at.master != nullptr ? at.master[j] : to_float(at.parameters[j]);
        const float after = updated<kRule>(f, before, to_float(at.gradient[j]), a, b);
        if constexpr (slots_of(kRule) > 0) at.first[j] = a;
        if constexpr (slots_of(kRule) > 1) at.second[j] = b;
        if (at.master != nullptr) at.master[j] = after;
        at.out[j] = from_float<P>(after);
      }
    }
  }
}

constexpr unsigned kLanes = 16;  ///< as in norm.cpp

/// Sixteen threads per block of elements: each thread sums one lane, then a tree adds the lanes.
template <class T>
__global__ void square_kernel(std::size_t size, std::size_t blocks, const T* values, double* sums) {
  const unsigned lane = threadIdx.x % kLanes;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x / kLanes;
  const std::size_t rounds = (blocks + stride - 1) / stride;  // equal for all threads: shuffles need whole warps
  std::size_t block = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
  for (std::size_t round = 0; round < rounds; ++round, block += stride) {
    double sum = 0;
    if (block < blocks)
      for (std::size_t i = block * kCut + lane; i < (block + 1) * kCut; i += kLanes) {
        const auto value = static_cast<double>(i < size ? to_float(values[i]) : 0.0F);
        sum += value * value;
      }
    for (int width = kLanes / 2; width > 0; width /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, width);
    if (lane == 0 && block < blocks) sums[block] = sum;
  }
}

template <class P, class G>
cudaError_t launch_apply(const psring::cuda::Queue& queue, const Formula& formula, const DeviceRange& range) {
  const auto floats = [](const Elements& elements) {
    return reinterpret_cast<float*>(elements.empty() ? nullptr : elements.data());
  };
  const Operands<P, G> at{range.gradient.size(),
                          reinterpret_cast<const P*>(range.parameters.data()),
                          reinterpret_cast<const G*>(range.gradient.data()),
                          floats(range.master),
                          floats(range.slot[0]),
                          floats(range.slot[1]),
                          reinterpret_cast<P*>(range.out.data())};
  const unsigned blocks = psring::cuda::blocks_for(queue, (at.size + kGroup - 1) / kGroup, kMapThreads);
  const auto go = [&](auto kernel) { return psring::cuda::launch(queue, kernel, blocks, kMapThreads, 0, formula, at); };
  switch (formula.rule) {
    case Rule::sgd:
      return go(&apply_kernel<Rule::sgd, P, G>);
    case Rule::momentum:
      return go(&apply_kernel<Rule::momentum, P, G>);
    case Rule::nesterov:
      return go(&apply_kernel<Rule::nesterov, P, G>);
    case Rule::square_scaled:
      return go(&apply_kernel<Rule::square_scaled, P, G>);
    case Rule::adam:
      return go(&apply_kernel<Rule::adam, P, G>);
    case Rule::adamw:
      return go(&apply_kernel<Rule::adamw, P, G>);
    case Rule::lamb:
      return go(&apply_kernel<Rule::lamb, P, G>);
  }
  return psring::cuda::kNoKernel;
}

}  // namespace

cudaError_t apply(const psring::cuda::Queue& queue, const Formula& formula, const DeviceRange& range) {
  cudaError_t error = psring::cuda::kNoKernel;
  psring::cuda::with_type(range.out.type(), [&](auto parameter) {
    psring::cuda::with_type(range.gradient.type(), [&](auto gradient) {
      error = launch_apply<decltype(parameter), decltype(gradient)>(queue, formula, range);
    });
  });
  return error;
}

cudaError_t square_sums(const psring::cuda::Queue& queue, ConstElements values, double* sums) {
  cudaError_t error = psring::cuda::kNoKernel;
  const std::size_t blocks = (values.size() + kCut - 1) / kCut;
  psring::cuda::with_type(values.type(), [&](auto type) {
    using T = decltype(type);
    error = psring::cuda::launch(queue, &square_kernel<T>, psring::cuda::blocks_for(queue, blocks * kLanes, 256), 256,
                                 0, values.size(), blocks, reinterpret_cast<const T*>(values.data()), sums);
  });
  return error;
}

}  // namespace psring::optim::cuda
