#pragma once

#include <memory>

#include <psring/worker/model/device/device_layer.h>
#include <psring/worker/model/layers/gpt_layers.h>

namespace psring::worker {

// The layers of gpt_layers.h on a device. GELU's input and output are saved; layer norms' outputs are recomputed.

std::unique_ptr<DeviceLayer> make_device_embedding(const GptShape& shape);
std::unique_ptr<DeviceLayer> make_device_attention_half(const GptShape& shape);
std::unique_ptr<DeviceLayer> make_device_mlp_half(const GptShape& shape);
std::unique_ptr<DeviceLayer> make_device_head(const GptShape& shape);

}  // namespace psring::worker
