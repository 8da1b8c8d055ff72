#pragma once

#include <psring/common/net/frame.h>
#include <psring/common/net/key.h>
#include <psring/tests/fuzz/input.h>

namespace psring::fuzz {

/// A header that the decoder lets through, its fields from the input: what it is about is in reach of few bytes.
inline net::FrameHeader read_header(Input& in, std::uint64_t job = 0) {
  net::FrameHeader header;
  header.type = static_cast<net::FrameType>(1 + in.below(net::kFrameTypes - 1));
  const std::uint8_t plain = in.byte();
  header.job = (plain & 1) != 0 ? in.odd_number() : job;
  header.dtype = (plain & 2) != 0 ? static_cast<DType>(in.below(kDTypes)) : DType::f32;
  header.sender_role = static_cast<net::Role>(in.below(4));
  header.sender_rank = static_cast<std::uint32_t>(in.odd_number());
  header.flags = in.byte();
  header.unit = static_cast<std::uint32_t>(in.odd_number());
  header.begin = in.odd_number();
  header.end = std::max(header.begin, in.odd_number());
  header.step = in.odd_number();
  header.version = in.odd_number();
  header.dest = in.odd_number();
  if ((plain & 4) != 0) header.incarnation = static_cast<std::uint32_t>(in.odd_number());
  if ((plain & 8) != 0) header.micro = static_cast<std::uint32_t>(in.odd_number());
  if ((plain & 16) != 0) header.payload_bytes = in.odd_number() % (net::kMaxPayloadBytes + 1);
  return header;
}

/// A key of this process.
inline const net::JobKey& job_key() {
  static const net::JobKey key = net::JobKey::generate();
  return key;
}

}  // namespace psring::fuzz
