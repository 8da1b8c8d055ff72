#pragma once

#include <cstddef>
#include <memory>

#include <cuda_runtime.h>

#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker::cuda {

/// Attention of 16-bit types by cuDNN's fused kernels, in their deterministic form. Keeps a plan for each shape.
/// Without cuDNN (no_fused_attention.cpp) it has no plan for any shape.
class FusedAttention {
 public:
  FusedAttention();
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  struct Plan;
  /// Returns null if cuDNN has no kernels for the shape: it takes head_dims that are multiples of 8, up to 128 or 256.
  /// Makes the plan in the first call for a shape, which queues nothing.
  std::shared_ptr<const Plan> plan(const AttentionShape& shape, DType type);

  /// Returns the bytes of a pass's scratch memory. The backward pass needs memory that grows with context^2, because
  /// cuDNN keeps the gradients of the scores there. So the pass takes as many sequences and heads at a time as fit into
  /// 2 GiB, and at least one head.
  static std::size_t forward_bytes(const Plan& plan);
  static std::size_t backward_bytes(const Plan& plan);

  // The contract is TensorKernels'. `scratch`: the bytes that the pass needs, on the device.
  static void forward(const Plan& plan, cudaStream_t stream, ConstElements qkv, Elements out, float* log_sums,
                      void* scratch);
  static void backward(const Plan& plan, cudaStream_t stream, ConstElements qkv, ConstElements out,
                       const float* log_sums, ConstElements d_out, Elements d_qkv, void* scratch);

 private:
  struct Plans;
  std::shared_ptr<Plans> plans_;  ///< null without cuDNN, and before the first plan
};

}  // namespace psring::worker::cuda
