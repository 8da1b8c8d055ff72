// The symbol that processes look up after loading the module; see common/device/cuda_module.cpp.
#include <psring/worker/model/cuda/tensor_kernels.h>

extern "C" psring::worker::TensorKernels* psring_make_tensor_kernels(psring::Device* device) {
  return psring::worker::cuda::make_tensor_kernels(*device).release();
}
