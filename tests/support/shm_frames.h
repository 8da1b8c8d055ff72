#pragma once

#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/transport.h>
#include <psring/tests/support/shm_cluster.h>

// Frames of links by shared memory, as the tests of links send and receive them.

namespace psring::net::test {

inline FrameHeader frame(FrameType type, Range range = {}, DType dtype = DType::f32) {
  FrameHeader header;
  header.type = type;
  header.dtype = dtype;
  header.set_range(range);
  return header;
}

inline Message next(Transport& transport) {
  auto message = transport.receive(in(20));
  REQUIRE(message);
  return std::move(*message);
}

inline bool names(const Error& error, const char* what) {
  return std::string(error.what()).find(what) != std::string::npos;
}

}  // namespace psring::net::test
