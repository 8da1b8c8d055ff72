#pragma once

#include <memory>

#include <psring/common/device/cuda/launch.h>
#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker::cuda {

using psring::cuda::Queue;

/// Matrix products by cuBLASLt, fused with bias and activation if possible. f32 is computed in f32 (no TF32); 16-bit
/// types are summed in f32. Keeps a plan for each shape and kind: of the algorithms that the library proposes, the one
/// that is fastest here among those that give the same bits as the first. So the bits do not depend on how fast this
/// GPU happens to be at that moment.
class Products {
 public:
  Products();
  ~Products();

  /// Queues a product. `workspace`: kWorkspaceBytes on the device. Returns true if the caller must still apply bias and
  /// `then`, because no fused kernel exists. Waits for the stream while it compares algorithms, once for a plan and
  /// not while a graph is captured.
  bool run(const Product& product, void* workspace, const Queue& queue);

  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace psring::worker::cuda
