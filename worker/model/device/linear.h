#pragma once

#include <cstddef>
#include <memory>

#include <psring/worker/model/device/device_layer.h>
#include <psring/worker/model/layers/linear.h>

namespace psring::worker {

/// Linear and Gelu on a device.
std::unique_ptr<DeviceLayer> make_device_linear(std::size_t in, std::size_t out, Linear::Options options);
std::unique_ptr<DeviceLayer> make_device_gelu();

}  // namespace psring::worker
