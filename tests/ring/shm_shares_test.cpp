// Tests which rank has which slice of an operation that ranks share out, however long ago the last such operation was.
#include <cstdint>
#include <initializer_list>

#include <catch2/catch.hpp>

#include <psring/ring/shm/shares.h>

using psring::ring::ShmShares;

namespace {

/// Claims and finishes all slices, as two ranks in turn would; false where something is not as it should be.
bool shared_out(ShmShares& shares, std::uint64_t number, std::uint64_t slices) {
  for (std::uint64_t slice = 0; slice < slices; ++slice) {
    if (shares.done(number, slices) || shares.claim(number, slices) != slice) return false;
    if (shares.finish(slices) != (slice + 1 == slices)) return false;
  }
  return !shares.claim(number, slices) && shares.done(number, slices);
}

}  // namespace

TEST_CASE("slices are claimed once, in order") {
  ShmShares shares;
  for (std::uint64_t number = 0; number < 20; ++number) REQUIRE(shared_out(shares, number, 1 + number % 5));
  REQUIRE(shared_out(shares, 20, ShmShares::kMost));
  CHECK(shares.done(19, 3));  // who comes late finds nothing left
  CHECK_FALSE(shares.claim(19, 3));
}

TEST_CASE("an operation is not done before its slices are, whatever number it has") {
  for (const std::uint64_t apart :
       {std::uint64_t{1}, (std::uint64_t{1} << 31) - 1, std::uint64_t{1} << 31, (std::uint64_t{1} << 31) + 1,
        std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 40}) {
    CAPTURE(apart);
    ShmShares shares;
    std::uint64_t number = 3;
    for (int i = 0; i < 3; ++i, number += apart) REQUIRE(shared_out(shares, number, 4));
  }
  // Numbers that the word's bits for the operation do not hold.
  ShmShares shares;
  for (std::uint64_t number = 0; number < 60; number += 20) REQUIRE(shared_out(shares, (number << 36) + number, 4));
}
