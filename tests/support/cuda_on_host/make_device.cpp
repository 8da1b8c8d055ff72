#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda_module.h>
#include <psring/optim/cuda/applier.h>

// In place of the module that programs load.

namespace psring {

void require_cuda() {}
void* cuda_symbol(const char* /*name*/) { return nullptr; }

std::unique_ptr<Device> make_cuda_device(std::size_t index) { return cuda::make_device(index); }

namespace optim {

std::unique_ptr<DeviceApplier> make_device_applier(Device& device) { return cuda::make_applier(device); }

}  // namespace optim

}  // namespace psring
