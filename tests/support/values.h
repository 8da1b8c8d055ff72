#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>

namespace psring::test {

/// `size` standard normal numbers times `scale`, the same for the same seed.
inline std::vector<float> normal_values(std::size_t size, std::uint64_t seed, float scale = 1) {
  const CounterRng rng({.seed = seed});
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = scale * rng.normal(i);
  return values;
}

/// The line of the error of `kind` that `call` must throw.
template <class Call>
std::string error_of(ErrorKind kind, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  FAIL("no error was thrown");
  return {};
}

}  // namespace psring::test
