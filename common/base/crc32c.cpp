#include <cstring>

#include <nmmintrin.h>

#include <psring/common/base/crc32c.h>

namespace psring {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint64_t crc = before ^ 0xFFFFFFFF;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; left > 0; ++at, --left)
    crc = _mm_crc32_u8(static_cast<std::uint32_t>(crc), std::to_integer<std::uint8_t>(*at));
  return static_cast<std::uint32_t>(crc) ^ 0xFFFFFFFF;
}

}  // namespace psring
