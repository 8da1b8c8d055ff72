#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda_module.h>
#include <psring/common/device/device.h>

// Replaces cuda_module.cpp if there is no CUDA toolkit.

namespace psring {

void require_cuda() {
  fail(ErrorKind::usage,
       "--device cuda: built without CUDA; use --device cpu, or install the CUDA toolkit with cuBLAS and NCCL "
       "(https://developer.nvidia.com/cuda-downloads) and build psring again with cmake -DPSRING_CUDA=ON");
}

void* cuda_symbol(const char* /*name*/) {
  require_cuda();
  return nullptr;
}

std::size_t cuda_devices() {
  require_cuda();
  return 0;
}

std::unique_ptr<Device> make_cuda_device(std::size_t /*index*/) {
  require_cuda();
  return nullptr;
}

}  // namespace psring
