#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/range.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/norm.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using test::normal_values;

namespace {

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum;
}

/// Finite doubles of all exponents and both signs.
std::vector<double> wild_doubles(std::size_t count, unsigned seed) {
  std::mt19937_64 rng(seed);
  std::vector<double> values;
  while (values.size() < count) {
    const auto value = std::bit_cast<double>(rng());
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

}  // namespace

TEST_CASE("one term comes back as it went in") {
  CHECK(ExactSum().value() == 0);
  for (const double x : {0.0, 1.0, -1.0, 0.1, kTiny, -kTiny, 2.5e-308, kMax, -kMax, 0x1p-1022, 0x1p-1010, 0x1p63})
    CHECK(sum_of({x}).value() == x);
  for (const double x : wild_doubles(10000, 1)) REQUIRE(sum_of({x}).value() == x);
}

TEST_CASE("two terms round as the processor's addition does") {
  const std::vector<double> a = wild_doubles(20000, 2);
  for (std::size_t i = 0; i + 1 < a.size(); ++i) {
    REQUIRE(sum_of({a[i], a[i + 1]}).value() == a[i] + a[i + 1]);
    // Exponents close to each other, where rounding and cancellation happen.
    const double near = std::ldexp(a[i + 1], std::clamp(std::ilogb(a[i]) - std::ilogb(a[i + 1]), -900, 900));
    REQUIRE(sum_of({a[i], near}).value() == a[i] + near);
  }
}

TEST_CASE("ties go to even, and any bit below breaks them") {
  const double half_ulp = 0x1p-53;
  CHECK(sum_of({1, half_ulp}).value() == 1);
  CHECK(sum_of({1, half_ulp, kTiny}).value() == 1 + 0x1p-52);
  CHECK(sum_of({1, half_ulp, -kTiny}).value() == 1);
  CHECK(sum_of({1 + 0x1p-52, half_ulp}).value() == 1 + 0x1p-51);
  CHECK(sum_of({-1, -half_ulp}).value() == -1);
  CHECK(sum_of({-1, -half_ulp, -kTiny}).value() == -1 - 0x1p-52);
}

TEST_CASE("huge terms cancel and leave the tiny ones") {
  CHECK(sum_of({1e300, 1, -1e300}).value() == 1);
  CHECK(sum_of({kMax, kMax, kTiny, -kMax, -kMax}).value() == kTiny);
  CHECK(sum_of({kTiny, -kMax, -1, kMax}).value() == -1);
  CHECK(sum_of({1e16, 1, 1, 1, -1e16}).value() == 3);
  CHECK(sum_of({-kTiny, kTiny}) == ExactSum());
  CHECK(sum_of({kMax, kMax}).value() == kInfinity);
  CHECK(sum_of({-kMax, -kMax}).value() == -kInfinity);
}

TEST_CASE("a sum does not depend on order or on merges") {
  std::vector<double> terms = wild_doubles(1000, 3);
  const ExactSum expected = sum_of(terms);
  std::mt19937 rng(4);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(terms.begin(), terms.end(), rng);
    std::vector<ExactSum> parts(1 + rng() % 7);
    for (const double term : terms) parts[rng() % parts.size()].add(term);
    std::shuffle(parts.begin(), parts.end(), rng);
    ExactSum merged;
    for (const ExactSum& part : parts) merged.merge(part);
    REQUIRE(merged == expected);
  }
  std::vector<double> negated = terms;
  for (double& term : negated) term = -term;
  ExactSum zero = sum_of(negated);
  zero.merge(expected);
  CHECK(zero == ExactSum());
  ExactSum carried = sum_of({-kTiny});  // every bit is set: the carry runs through all words
  carried.merge(sum_of({kTiny}));
  CHECK(carried == ExactSum());
}

TEST_CASE("many equal terms are their product") {
  ExactSum sum;
  for (int i = 0; i < 1000000; ++i) sum.add(0.1);
  CHECK(sum.value() == static_cast<double>(static_cast<long double>(0.1) * 1000000));
}

TEST_CASE("what is not finite makes the sum NaN for good, wherever it comes") {
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const ExactSum first = sum_of({bad, 1, 2});
    CHECK(std::isnan(first.value()));
    CHECK(sum_of({1, bad, 2}) == first);
    CHECK(sum_of({1, 2, bad, bad}) == first);
    ExactSum merged = sum_of({1});
    merged.merge(sum_of({bad}));
    merged.merge(sum_of({2}));
    CHECK(merged == first);
  }
  CHECK(std::isnan(sum_of({kInfinity, -kInfinity}).value()));
}

TEST_CASE("a sum travels as bytes") {
  for (const ExactSum& sum : {ExactSum(), sum_of(wild_doubles(100, 5)), sum_of({-1}), sum_of({kInfinity})}) {
    std::array<std::byte, ExactSum::kBytes> bytes{};
    sum.store(bytes);
    CHECK(ExactSum::load(bytes) == sum);
  }
  std::array<std::byte, ExactSum::kBytes> one{};
  sum_of({kTiny}).store(one);
  CHECK(one[0] == std::byte{1});
  one[ExactSum::kBytes - 1] = std::byte{0x80};
  CHECK(std::isnan(ExactSum::load(one).value()));
  CHECK(ExactSum::load(one) == sum_of({kTiny, kInfinity}));
}

TEST_CASE("a block's sum of squares is right, and zeros at its end do not change it") {
  for (const std::size_t size : {0, 1, 15, 16, 17, 100, 255, 256}) {
    std::vector<float> values = normal_values(size, 6);
    double expected = 0;
    for (const float value : values) expected += double{value} * value;
    const double sum = block_square_sum(values);
    CHECK(sum == Approx(expected).epsilon(1e-14));
    values.resize(kCut, 0.0F);
    CHECK(block_square_sum(values) == sum);
  }
  CHECK_THROWS_AS(block_square_sum(std::vector<float>(257)), Error);
}

TEST_CASE("a block is summed in the order that its header states") {
  const std::vector<float> values = normal_values(kCut, 8, 1e3F);
  double lane[16] = {};
  for (std::size_t i = 0; i < kCut; ++i) lane[i % 16] += double{values[i]} * values[i];
  for (const std::size_t width : {8, 4, 2, 1})
    for (std::size_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  CHECK(block_square_sum(values) == lane[0]);
}

TEST_CASE("a sum of squares is the same however the range is cut") {
  for (const std::size_t size : {0, 1, 256, 257, 5000}) {
    std::vector<float> values = normal_values(size, 7);
    for (std::size_t i = 0; i < size; i += 3) values[i] *= 1e15F;
    ExactSum whole;
    add_square_sum(values, whole);
    for (const std::size_t step : {256, 512, 1280}) {
      ExactSum parts;
      for (std::size_t begin = 0; begin < size; begin += step)
        add_square_sum(std::span(values).subspan(begin, std::min(step, size - begin)), parts);
      CHECK(parts == whole);
    }
  }
  ExactSum bad;
  add_square_sum(std::vector<float>{1, std::numeric_limits<float>::infinity()}, bad);
  CHECK(std::isnan(bad.value()));
  ExactSum large;  // f32's largest: its square is far from f64's
  add_square_sum(std::vector<float>(1000, std::numeric_limits<float>::max()), large);
  CHECK(std::isfinite(large.value()));
}
