// Functions that the module exports; see common/device/cuda_module.cpp.
#include <psring/common/device/cuda/device.h>
#include <psring/optim/cuda/applier.h>
#include <psring/optim/cuda/codec.h>

extern "C" std::size_t psring_cuda_devices() { return psring::cuda::devices(); }

extern "C" psring::Device* psring_make_cuda_device(std::size_t index) {
  return psring::cuda::make_device(index).release();
}

extern "C" psring::optim::DeviceApplier* psring_make_cuda_applier(psring::Device* device) {
  return psring::optim::cuda::make_applier(*device).release();
}

extern "C" psring::optim::Codec* psring_make_cuda_codec(const char* text, bool error_feedback, psring::Device* device) {
  return psring::optim::cuda::make_codec(text, error_feedback, *device).release();
}
