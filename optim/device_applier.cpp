#include <psring/common/device/cuda_module.h>
#include <psring/optim/device_applier.h>

namespace psring::optim {

std::unique_ptr<DeviceApplier> make_device_applier(Device& device) {
  using Make = DeviceApplier* (*)(Device*);
  return std::unique_ptr<DeviceApplier>(reinterpret_cast<Make>(cuda_symbol("psring_make_cuda_applier"))(&device));
}

}  // namespace psring::optim
