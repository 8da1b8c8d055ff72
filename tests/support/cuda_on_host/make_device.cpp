#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda_module.h>
#include <psring/optim/cuda/applier.h>
#include <psring/optim/cuda/codec.h>
#include <psring/ring/cuda/nccl_group.h>
#include <psring/worker/model/cuda/tensor_kernels.h>

// In place of the module that programs load.

namespace psring {

void require_cuda() {}
void* cuda_symbol(const char* /*name*/) { return nullptr; }

std::size_t cuda_devices() { return cuda::devices(); }
std::unique_ptr<Device> make_cuda_device(std::size_t index) { return cuda::make_device(index); }

namespace optim {

std::unique_ptr<DeviceApplier> make_device_applier(Device& device) { return cuda::make_applier(device); }
std::unique_ptr<Codec> make_device_codec(const std::string& text, bool error_feedback, Device& device) {
  return cuda::make_codec(text, error_feedback, device);
}

}  // namespace optim

namespace ring {

std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options) {
  return cuda::make_group(std::move(host), device, std::move(options));
}

}  // namespace ring

namespace worker {

std::unique_ptr<TensorKernels> make_tensor_kernels(Device& device) { return cuda::make_tensor_kernels(device); }

}  // namespace worker

}  // namespace psring
