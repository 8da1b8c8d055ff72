#include <nmmintrin.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/processor/crc32c_loop.h>

namespace psring {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  return crc32c_loop(
      bytes, before,
      [](std::uint32_t crc, std::uint64_t next) { return static_cast<std::uint32_t>(_mm_crc32_u64(crc, next)); },
      [](std::uint32_t crc, std::uint8_t next) { return _mm_crc32_u8(crc, next); });
}

}  // namespace psring
