#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace psring::net {

// A bit for each key of a frame of rows, in words of 64, from the lowest bit (kAhead, kCached in row_flags.h).
using Marks = std::vector<std::uint64_t>;

/// Returns the bytes of the bits for so many keys.
constexpr std::size_t mark_bytes(std::size_t keys) { return (keys + 63) / 64 * sizeof(std::uint64_t); }

inline bool is_marked(const Marks& marks, std::size_t key) { return (marks[key / 64] >> key % 64 & 1) != 0; }
std::size_t count_of(const Marks& marks);
/// Sets the bits of the keys that have 1.
Marks marks_of(std::span<const std::uint8_t> ones);
/// Reads the bits of so many keys. Throws protocol if a bit behind them is set. REQUIRES: bytes are as many, or none.
Marks read_marks(std::span<const std::byte> bytes, std::size_t keys);

/// Returns the number of keys in so many bytes. `marked`: a bit for each key is behind them. Throws protocol if the
/// bytes are of no whole number.
std::size_t keys_in(std::size_t bytes, std::size_t key_bytes, bool marked);

/// Copies rows to the places whose bits are `set`, in order.
void scatter(std::span<const std::byte> rows, const Marks& marks, bool set, std::span<std::byte> into,
             std::size_t row_bytes);

}  // namespace psring::net
