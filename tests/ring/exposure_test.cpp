#include <chrono>

#include <catch2/catch.hpp>

#include <psring/ring/exposure.h>
#include <psring/tests/support/hand_clock.h>

using namespace psring;
using namespace psring::ring;
using namespace std::chrono_literals;

namespace {

constexpr net::LinkSpec kLink{.bits_per_second = 8e6, .delay = 5ms};  // 1 MB/s

}  // namespace

TEST_CASE("what leaves after backward is exposed whole, with its delays") {
  const Departure one{0, 10'000, 2};
  CHECK(exposed_seconds(kLink, std::span(&one, 1)) == Approx(0.010 + 2 * 0.005));
}

TEST_CASE("what is complete before backward ends costs nothing") {
  const Departure early{-1, 10'000, 2};
  CHECK(exposed_seconds(kLink, std::span(&early, 1)) == 0);
  CHECK(exposed_seconds(kLink, {}) == 0);
}

TEST_CASE("departures share one card, and fill each other's delays") {
  const Departure two[] = {{-0.004, 10'000, 2}, {-0.001, 3'000, 2}};
  CHECK(exposed_seconds(kLink, two) == Approx(-0.004 + 0.010 + 0.003 + 0.010));
  const Departure apart[] = {{-0.100, 10'000, 2}, {-0.001, 3'000, 2}};  // the card is idle in between
  CHECK(exposed_seconds(kLink, apart) == Approx(-0.001 + 0.003 + 0.010));
}

TEST_CASE("a step's exposure is a mean, one by one a sum, and nothing without a link") {
  test::HandClock clock;
  Exposure together("8mbit,5ms", false, clock);
  Exposure one_by_one("8mbit,5ms", true, clock);
  Exposure none("", false, clock);
  CHECK(!together.of_a_step());
  const Cost cost{{10'000, 8'000}, 2};
  for (Exposure* each : {&together, &one_by_one, &none}) {
    for (int step = 0; step < 2; ++step) {
      each->begin_step();
      each->launched(cost);
      each->launched(cost);
      each->end_step(clock.now());
    }
  }
  CHECK(*together.of_a_step() == Approx(0.020 + 0.010));
  CHECK(*one_by_one.of_a_step() == Approx(2 * (0.010 + 0.010)));
  CHECK(!none.of_a_step());
}
