#include <arm_acle.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/processor/crc32c_loop.h>

namespace psring {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  return crc32c_loop(
      bytes, before, [](std::uint32_t crc, std::uint64_t next) { return __crc32cd(crc, next); },
      [](std::uint32_t crc, std::uint8_t next) { return __crc32cb(crc, next); });
}

}  // namespace psring
