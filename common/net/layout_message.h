#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>

namespace psring::net {

/// The first message of a worker to each server: the units that the worker will push and pull.
struct LayoutMessage {
  Layout layout;
  std::uint64_t seed = 0;          ///< seed of the initial parameters
  bool initial_by_worker = false;  ///< true: worker 0 sends the initial parameters; false: the servers generate their
                                   ///< ranges
};

std::vector<std::byte> encode(const LayoutMessage& message);

/// Throws protocol if the bytes are not a valid message or exceed the limits: kMaxPayloadBytes, names of 256 bytes,
/// 2^20 tensors, 8 dimensions, 2^16 ranges of a slice, 2^48 elements in total, 4,096 tables of width 8,192. make_layout
/// computes the offsets.
LayoutMessage decode_layout(std::span<const std::byte> bytes);

/// Names the first difference of two messages with different bytes: "unit 1 'layers.1': tensor 'layers.1.weight' is
/// [10, 20], not [10, 30]".
std::string difference(const LayoutMessage& message, const LayoutMessage& expected);

}  // namespace psring::net
