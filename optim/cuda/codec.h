#pragma once

#include <memory>
#include <string>

#include <psring/optim/codec/compression.h>

namespace psring::optim::cuda {

/// As make_device_codec says: here is where it is made.
std::unique_ptr<Codec> make_codec(const std::string& text, bool error_feedback, Device& device, MemoryLedger& ledger);

}  // namespace psring::optim::cuda
