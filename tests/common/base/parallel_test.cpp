#include <atomic>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/parallel.h>
#include <psring/tests/support/values.h>

using namespace psring;

TEST_CASE("slices cover everything once, cut on multiples of the grain") {
  for (const std::size_t threads : {1, 2, 3, 5}) {
    Parallel parallel(threads);
    CHECK(parallel.threads() == threads);
    for (const std::size_t size : {0, 1, 63, 64, 65, 128, 200, 6400, 6401}) {
      std::vector<int> touched(size, 0);
      std::atomic<int> odd_cuts{0};
      std::atomic<std::size_t> calls{0};
      parallel.for_slices(size, 64, [&](Range slice) {
        ++calls;
        if (slice.empty() || slice.begin % 64 != 0 || (slice.end % 64 != 0 && slice.end != size)) ++odd_cuts;
        for (std::size_t i = slice.begin; i < slice.end; ++i) ++touched[i];
      });
      CAPTURE(threads, size);
      CHECK(touched == std::vector<int>(size, 1));
      CHECK(odd_cuts == 0);
      CHECK(calls <= threads);
      CHECK((calls == 0) == (size == 0));
    }
  }
}

TEST_CASE("loops follow each other without losing one") {
  Parallel parallel(3);
  std::vector<std::uint64_t> sums(3000, 0);
  for (std::uint64_t round = 0; round < 5000; ++round)
    parallel.for_slices(sums.size(), 1, [&](Range slice) {
      for (std::size_t i = slice.begin; i < slice.end; ++i) sums[i] += round;
    });
  CHECK(sums == std::vector<std::uint64_t>(3000, 5000 * 4999 / 2));
}

TEST_CASE("a throw of any slice is thrown to the caller, after all are done, and the team goes on") {
  for (const std::size_t threads : {1, 2, 4}) {
    Parallel parallel(threads);
    for (std::size_t thrower = 0; thrower < threads; ++thrower) {
      std::atomic<std::size_t> done{0};
      const auto body = [&](Range slice) {
        done += slice.size();
        if (slice.contains({thrower * 100, thrower * 100 + 1})) throw std::runtime_error("slice");
      };
      CHECK_THROWS_AS(parallel.for_slices(100 * threads, 100, body), std::runtime_error);
      CHECK(done == 100 * threads);
    }
    std::atomic<std::size_t> done{0};
    parallel.for_slices(1000, 1, [&](Range slice) { done += slice.size(); });
    CHECK(done == 1000);
  }
}

TEST_CASE("a team that never worked ends, and one of no threads is a bug") {
  for (int i = 0; i < 100; ++i) const Parallel parallel(3);
  test::error_of(ErrorKind::bug, [] { const Parallel parallel(0); });
}
