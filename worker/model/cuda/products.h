#pragma once

#include <memory>

#include <cuda_runtime.h>

#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker::cuda {

/// Matrix products by cuBLASLt, fused with bias and activation if possible. f32 is computed in f32 (no TF32); 16-bit
/// types are summed in f32. Keeps a plan for each shape and kind.
class Products {
 public:
  Products();
  ~Products();

  /// Queues a product. `workspace`: kWorkspaceBytes on the device. Returns true if the caller must still apply bias and
  /// `then`, because no fused kernel exists.
  bool run(const Product& product, void* workspace, cudaStream_t stream);

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace psring::worker::cuda
