#include <cstring>
#include <string_view>

#include <catch2/catch.hpp>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/frame.h>

using namespace psring;
using namespace psring::net;

namespace {

FrameHeader sample() {
  FrameHeader h;
  h.type = FrameType::push;
  h.sender_rank = 3;
  h.step = 812;
  h.unit = 2;
  h.set_range({256, 1024});
  h.payload_bytes = 3072;
  return h;
}

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST_CASE("crc32c gives the published check value") { CHECK(crc32c(as_bytes("123456789")) == 0xE3069283); }

TEST_CASE("a header survives the wire") {
  const FrameHeader back = decode(encode(sample()));
  CHECK(back.type == FrameType::push);
  CHECK(back.sender() == Peer{Role::worker, 3});
  CHECK(back.step == 812);
  CHECK(back.range() == Range{256, 1024});
  CHECK(back.payload_bytes == 3072);
}

TEST_CASE("truncated, flipped and foreign headers are refused, never taken") {
  const auto good = encode(sample());
  for (std::size_t n = 0; n < kHeaderBytes; ++n) CHECK_THROWS_AS(decode(std::span(good).first(n)), Error);
  for (std::size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_THROWS_AS(decode(bad), Error);
  }
  const CounterRng rng({.seed = 1});
  for (std::uint32_t i = 0; i < 2000; ++i) {
    auto noise = good;
    for (std::size_t b = 0; b < kHeaderBytes; ++b) noise[b] = static_cast<std::byte>(rng.bits(i * kHeaderBytes + b));
    CHECK_THROWS_AS(decode(noise), Error);
  }
}

TEST_CASE("values outside their bounds are refused though the checksum holds") {
  const auto refuses = [](auto change) {
    FrameHeader h = sample();
    change(h);
    CHECK_THROWS_AS(decode(encode(h)), Error);
  };
  refuses([](FrameHeader& h) { h.payload_bytes = kMaxPayloadBytes + 1; });
  refuses([](FrameHeader& h) { h.begin = h.end + 1; });
  refuses([](FrameHeader& h) { h.wire_version = 9; });
  for (const std::size_t offset :
       {offsetof(FrameHeader, type), offsetof(FrameHeader, dtype), offsetof(FrameHeader, encoding),
        offsetof(FrameHeader, sender_role), offsetof(FrameHeader, relayed)})
    refuses([&](FrameHeader& h) { std::memset(reinterpret_cast<std::byte*>(&h) + offset, 0xEE, 1); });
}
