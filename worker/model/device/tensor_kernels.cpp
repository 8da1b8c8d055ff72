#include <psring/common/device/cuda_module.h>
#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::worker {

std::unique_ptr<TensorKernels> make_tensor_kernels(Device& device) {
  using Make = TensorKernels* (*)(Device*);
  return std::unique_ptr<TensorKernels>(reinterpret_cast<Make>(cuda_symbol("psring_make_tensor_kernels"))(&device));
}

}  // namespace psring::worker
