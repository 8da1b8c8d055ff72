// What the module offers to those who load it; see common/device/cuda_module.cpp.
#include <psring/common/device/cuda/device.h>
#include <psring/optim/cuda/applier.h>

extern "C" std::size_t psring_cuda_devices() { return psring::cuda::devices(); }

extern "C" psring::Device* psring_make_cuda_device(std::size_t index) {
  return psring::cuda::make_device(index).release();
}

extern "C" psring::optim::DeviceApplier* psring_make_cuda_applier(psring::Device* device) {
  return psring::optim::cuda::make_applier(*device).release();
}
