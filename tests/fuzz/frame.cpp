// The header of data frames, of any bytes and of those with the right checksum: what it lets through is what encode
// writes.
#include <vector>

#include <psring/common/base/crc32c.h>
#include <psring/common/net/frame.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const bool sealed = in.below(2) == 1;
  const auto rest = in.rest();
  std::vector<std::byte> bytes(rest.begin(), rest.end());
  if (sealed) {
    bytes.resize(net::kHeaderBytes);
    const std::uint32_t crc = crc32c(std::span(bytes).first(net::kHeaderBytes - sizeof crc));
    std::memcpy(bytes.data() + net::kHeaderBytes - sizeof crc, &crc, sizeof crc);
  }
  refuses(ErrorKind::protocol, [&] {
    const net::FrameHeader header = net::decode(bytes);
    require(std::ranges::equal(net::encode(header), bytes), "a header that is not written as it was read");
    require(header.payload_bytes <= net::kMaxPayloadBytes && header.begin <= header.end, "bounds");
  });
}
