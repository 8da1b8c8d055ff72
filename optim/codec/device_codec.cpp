#include <psring/common/device/cuda_module.h>
#include <psring/optim/codec/compression.h>

namespace psring::optim {

std::unique_ptr<Codec> make_device_codec(const std::string& text, bool error_feedback, Device& device) {
  using Make = Codec* (*)(const char*, bool, Device*);
  return std::unique_ptr<Codec>(
      reinterpret_cast<Make>(cuda_symbol("psring_make_cuda_codec"))(text.c_str(), error_feedback, &device));
}

}  // namespace psring::optim
