#include <psring/worker/model/device/device_layer.h>

namespace psring::worker {

std::unique_ptr<DeviceLayer> Layer::on_device() const { return nullptr; }

}  // namespace psring::worker
