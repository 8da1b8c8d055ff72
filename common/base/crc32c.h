#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace psring {

/// CRC32C (Castagnoli, RFC 3720) of the bytes. `before` is the checksum of the bytes before them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace psring
