#pragma once

#include <cstdint>

#include <psring/common/net/frame.h>
#include <psring/common/net/row_marks.h>

namespace psring::net {

// Flags of the frames of rows. kCached is the bit of FrameHeader::kSkipped, which frames of rows do not have.

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

/// A rows_pull whose payload ends with a bit for each key (words of 64, from the lowest bit), set where the worker has
/// the row: the answer has the other rows.
inline constexpr std::uint8_t kCached = 8;

constexpr bool is_ahead(const FrameHeader& header) { return (header.flags & kAhead) != 0; }
constexpr bool is_cached(const FrameHeader& header) { return (header.flags & kCached) != 0; }
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
