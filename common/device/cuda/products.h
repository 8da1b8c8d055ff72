#pragma once

#include <memory>

#include <cuda_runtime.h>

#include <psring/common/device/tensor_kernels.h>

namespace psring::cuda {

/// Matrix products by cuBLASLt, with what follows them fused where it can. f32 is f32's own (no TF32); 16-bit types are
/// added up in f32. Keeps a plan for each shape and kind that it has met.
class Products {
 public:
  Products();
  ~Products();

  /// `workspace`: of kWorkspaceBytes, on the device. What of `product` is left undone (bias and `then`, after a product
  /// that no fused kernel serves): true.
  bool run(const Product& product, void* workspace, cudaStream_t stream);

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace psring::cuda
