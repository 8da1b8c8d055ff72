#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/common/net/frame.h>

namespace psring::net {

// Flags of the frames of rows, beside those of FrameHeader.

/// A rows_pull that no gradients follow, or a rows_push whose payload begins with keys; `micro` then is the f32
/// learning rate. With kStartUp such a push assigns values, in f32.
inline constexpr std::uint8_t kUnpaired = 32;
/// A rows_pull that asks for trained rows: its payload is the least hashed key, `micro` the most rows. The payload of
/// the answer, which has the flag as well, is hashed keys, ascending, and their rows in f32.
inline constexpr std::uint8_t kListed = 64;

/// A rows_pull of the next step under bsp. It is answered in two frames: one with this flag, whose payload is a bit for
/// each key (words of 64, from the lowest bit), set where no worker trains the key in the step before, and the rows of
/// these keys; and one with the other rows, once the step before is made.
inline constexpr std::uint8_t kAhead = 128;

/// Returns the bytes of the bits for so many keys.
constexpr std::size_t mark_bytes(std::size_t keys) { return (keys + 63) / 64 * sizeof(std::uint64_t); }

constexpr bool is_ahead(const FrameHeader& header) { return (header.flags & kAhead) != 0; }
constexpr bool is_unpaired(const FrameHeader& header) { return (header.flags & kUnpaired) != 0; }
constexpr bool is_listed(const FrameHeader& header) { return (header.flags & kListed) != 0; }
/// True for a rows_pull that no gradients of the pulled rows follow in its order.
constexpr bool only_reads(const FrameHeader& header) {
  return (header.flags & (FrameHeader::kStartUp | kUnpaired | kListed)) != 0;
}
constexpr bool assigns(const FrameHeader& header) {
  return header.type == FrameType::rows_push && is_unpaired(header) && (header.flags & FrameHeader::kStartUp) != 0;
}

}  // namespace psring::net
