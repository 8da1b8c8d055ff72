#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>

namespace psring::net {

/// What a worker tells each server before anything moves: the units that it will push and pull.
struct LayoutMessage {
  Layout layout;
  std::uint64_t seed = 0;          ///< of the initial parameters
  bool initial_by_worker = false;  ///< worker 0 sends them; else the servers generate their ranges
};

std::vector<std::byte> encode(const LayoutMessage& message);

/// Throws protocol where the bytes are not such a message or exceed its bounds: at most kMaxPayloadBytes,
/// names of 256 bytes, 2^20 tensors, 8 dimensions, 2^48 elements in all. Offsets follow from make_layout.
LayoutMessage decode_layout(std::span<const std::byte> bytes);

}  // namespace psring::net
