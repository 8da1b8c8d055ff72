#pragma once

#include <memory>
#include <string>

#include <psring/optim/codec/compression.h>

namespace psring::optim::cuda {

/// Implements make_device_codec.
std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback, Device& device);

}  // namespace psring::optim::cuda
