#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <catch2/catch.hpp>

#include <psring/common/base/text/registry.h>
#include <psring/server/aggregator.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::error_of;
using test::normal_values;

namespace {

using Inputs = std::vector<std::vector<float>>;

std::unique_ptr<server::Aggregator> make(const std::string& text) {
  Registry<server::Aggregator> registry;
  server::register_builtin_aggregators(registry);
  return registry.make(Spec::parse("--aggregate", text));
}

Inputs inputs_of(std::size_t workers, std::size_t size) {
  Inputs inputs;
  for (std::size_t w = 0; w < workers; ++w) inputs.push_back(normal_values(size, 31 * w + size));
  return inputs;
}

std::vector<float> aggregate(const server::Aggregator& rule, const Inputs& inputs) {
  std::vector<const float*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<float> out(inputs[0].size(), -7.0F);
  rule.aggregate(pointers, out);
  return out;
}

/// The definition, one element at a time.
template <class Rule>
std::vector<float> naive(const Inputs& inputs, Rule&& rule) {
  std::vector<float> out(inputs[0].size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::vector<float> values;
    for (const auto& input : inputs) values.push_back(input[i]);
    out[i] = rule(values);
  }
  return out;
}

float sum_of(const std::vector<float>& values) {
  float sum = values[0];
  for (std::size_t k = 1; k < values.size(); ++k) sum += values[k];
  return sum;
}

}  // namespace

TEST_CASE("mean, sum and median follow their definitions, for odd and even numbers of workers") {
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4, 5, 8}));
  for (const std::size_t size : {0, 1, 7, 2048, 2049, 5001}) {
    CAPTURE(workers, size);
    const Inputs inputs = inputs_of(workers, size);
    CHECK(aggregate(*make("sum"), inputs) == naive(inputs, sum_of));
    CHECK(aggregate(*make("mean"), inputs) == naive(inputs, [](const std::vector<float>& values) {
            return sum_of(values) * (1.0F / static_cast<float>(values.size()));
          }));
    CHECK(aggregate(*make("median"), inputs) == naive(inputs, [](std::vector<float> values) {
            std::sort(values.begin(), values.end());
            const std::size_t half = values.size() / 2;
            return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
          }));
  }
}

TEST_CASE("the trimmed mean leaves the k largest and smallest out") {
  for (const std::size_t k : {1, 2}) {
    for (std::size_t workers = 2 * k + 1; workers < 8; ++workers) {
      CAPTURE(k, workers);
      const Inputs inputs = inputs_of(workers, 513);
      CHECK(aggregate(*make(fmt::format("trimmed-mean:k={}", k)), inputs) ==
            naive(inputs, [&](std::vector<float> values) {
              std::sort(values.begin(), values.end());
              const std::vector<float> kept(values.begin() + k, values.end() - k);
              return sum_of(kept) / static_cast<float>(kept.size());
            }));
    }
  }
  CHECK(aggregate(*make("trimmed-mean"), {{1}, {5}, {100}}) == std::vector<float>{5});  // k=1
}

TEST_CASE("the robust rules are not moved by workers who send anything") {
  Inputs inputs = inputs_of(5, 100);
  const auto median = aggregate(*make("median"), inputs);
  const auto trimmed = aggregate(*make("trimmed-mean:k=2"), inputs);
  CHECK(trimmed == median);  // one of five values is left
  for (float& value : inputs[1]) value = 1e30F;
  for (float& value : inputs[3]) value = -1e30F;
  for (const char* rule : {"median", "trimmed-mean:k=2"})
    for (const float value : aggregate(*make(rule), inputs)) CHECK(std::abs(value) < 10);
}

TEST_CASE("the robust rules take NaN for the largest value, wherever it stands") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{5, 4, kNaN, 1, 2, -kNaN, 3};
  std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6};
  do {
    Inputs inputs;
    for (const std::size_t i : order) inputs.push_back({values[i]});
    REQUIRE(aggregate(*make("median"), inputs) == std::vector<float>{4});            // the values 1 2 3 4 5 and two NaN
    REQUIRE(aggregate(*make("trimmed-mean:k=2"), inputs) == std::vector<float>{4});  // the values 3 4 5
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(aggregate(*make("median"), {{5}, {4}, {kNaN}, {1}, {2}}) == std::vector<float>{4});
  CHECK(aggregate(*make("median"), {{kNaN}, {kInfinity}, {1}, {-kInfinity}, {2}}) == std::vector<float>{2});
  // More bad workers than the rule resists.
  CHECK(std::isnan(aggregate(*make("trimmed-mean"), {{kNaN}, {kNaN}, {1}, {2}})[0]));
  CHECK(std::isnan(aggregate(*make("median"), {{kNaN}, {kNaN}, {1}})[0]));
}

TEST_CASE("aggregation in slices is bitwise identical to aggregation of the whole") {
  const Inputs inputs = inputs_of(3, 5000);
  for (const char* name : {"mean", "sum", "median", "trimmed-mean"}) {
    const auto rule = make(name);
    const std::vector<float> whole = aggregate(*rule, inputs);
    std::vector<float> sliced(5000);
    for (std::size_t begin = 0; begin < 5000; begin += 777) {
      const std::size_t size = std::min<std::size_t>(777, 5000 - begin);
      const float* pointers[] = {&inputs[0][begin], &inputs[1][begin], &inputs[2][begin]};
      rule->aggregate(pointers, std::span(sliced).subspan(begin, size));
    }
    CHECK(sliced == whole);
  }
}

TEST_CASE("rules that cannot be are usage errors") {
  const Inputs two = inputs_of(2, 3);
  CHECK_THAT(error_of(ErrorKind::usage, [&] { aggregate(*make("trimmed-mean:k=1"), two); }),
             Catch::Contains("trimmed-mean:k=1: 2 workers leave nothing"));
  const Inputs four = inputs_of(4, 3);
  error_of(ErrorKind::usage, [&] { aggregate(*make("trimmed-mean:k=2"), four); });
  error_of(ErrorKind::usage,
           [&] { aggregate(*make("trimmed-mean:k=9223372036854775808"), four); });  // 2k overflows to 0
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("trimmed-mean:k=0"); }), Catch::Contains("--aggregate"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("trimmed-mean:trim=1"); }), Catch::Contains("'trim'"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("mean:k=1"); }), Catch::Contains("'k'"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("krum"); }),
             Catch::Contains("--aggregate: unknown name 'krum'; known: mean, median, sum, trimmed-mean"));
}
