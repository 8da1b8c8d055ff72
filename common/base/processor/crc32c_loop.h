#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace psring {

/// Computes crc32c() with a processor's instructions: `word` adds 8 bytes to a checksum, `byte` adds one.
template <class Word, class Byte>
std::uint32_t crc32c_loop(std::span<const std::byte> bytes, std::uint32_t before, Word word, Byte byte) {
  std::uint32_t crc = before ^ 0xFFFFFFFF;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t next = 0;
    std::memcpy(&next, at, 8);
    crc = word(crc, next);
  }
  for (; left > 0; ++at, --left) crc = byte(crc, std::to_integer<std::uint8_t>(*at));
  return crc ^ 0xFFFFFFFF;
}

}  // namespace psring
