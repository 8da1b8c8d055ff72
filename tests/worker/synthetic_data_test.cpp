// Synthetic samples have the classes, tokens, inputs or targets that a model needs, and something to learn.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <catch2/catch.hpp>

#include <psring/tests/support/values.h>
#include <psring/tests/worker/data_samples.h>
#include <psring/worker/data/synthetic.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;

TEST_CASE("synthetic classes follow a linear teacher") {
  const SyntheticSpec wanted{SyntheticSpec::Kind::classes, 3000, 12, 4, 7};
  const DataSplit split = make_synthetic(wanted);
  CHECK(split.test->size() == 300);
  CHECK(split.train->classes() == 4);
  // A perceptron learns it from the training split and holds on the test split.
  std::vector<double> w(12 * 4);
  const auto guess = [&](const Sample& s) {
    std::vector<double> score(4);
    for (std::size_t j = 0; j < 12; ++j)
      for (std::size_t c = 0; c < 4; ++c) score[c] += s.input[j] * w[j * 4 + c];
    return static_cast<std::int32_t>(std::max_element(score.begin(), score.end()) - score.begin());
  };
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (std::size_t i = 0; i < 3000; ++i) {
      const Sample s = sample(*split.train, i);
      const std::int32_t c = guess(s);
      if (c == s.targets[0]) continue;
      for (std::size_t j = 0; j < 12; ++j) {
        w[j * 4 + s.targets[0]] += s.input[j];
        w[j * 4 + c] -= s.input[j];
      }
    }
  }
  int correct = 0;
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < 300; ++i) {
    const Sample s = sample(*split.test, i);
    correct += guess(s) == s.targets[0];
    seen.insert(s.targets[0]);
    CHECK(std::all_of(s.input.begin(), s.input.end(), [](float x) { return x >= -1 && x < 1; }));
  }
  CHECK(seen.size() == 4);
  CHECK(correct > 270);
  CHECK(sample(*split.train, 5) == sample(*make_synthetic(wanted).train, 5));
  SyntheticSpec other = wanted;
  other.seed = 8;
  CHECK_FALSE(sample(*split.train, 5) == sample(*make_synthetic(other).train, 5));
}

TEST_CASE("synthetic tokens mostly have one successor") {
  const DataSplit split = make_synthetic({SyntheticSpec::Kind::tokens, 500, 32, 16, 3});
  CHECK(split.train->tokens());
  std::map<std::pair<int, int>, int> pairs;
  for (std::size_t i = 0; i < 500; ++i) {
    const Sample s = sample(*split.train, i);
    for (std::size_t j = 0; j < 32; ++j) {
      REQUIRE((s.targets[j] >= 0 && s.targets[j] < 16));
      if (j > 0) CHECK(s.input[j] == static_cast<float>(s.targets[j - 1]));
      ++pairs[{static_cast<int>(s.input[j]), s.targets[j]}];
    }
  }
  int likely = 0;
  for (int token = 0; token < 16; ++token) {
    int most = 0;
    for (int next = 0; next < 16; ++next) most = std::max(most, pairs[{token, next}]);
    likely += most;
  }
  CHECK(likely / (500.0 * 32) == Approx(0.75 + 0.25 / 16).margin(0.02));
}

TEST_CASE("synthetic inputs without targets are normal") {
  const DataSplit split = make_synthetic({SyntheticSpec::Kind::inputs, 200, 100, 0, 3});
  CHECK(split.train->targets_per_sample() == 0);
  double square = 0;
  for (std::size_t i = 0; i < 200; ++i)
    for (const float x : sample(*split.train, i).input) square += double{x} * x;
  CHECK(square / 20000 == Approx(1).margin(0.05));
  using Kind = SyntheticSpec::Kind;
  for (const SyntheticSpec& big :
       {SyntheticSpec{Kind::inputs, 1U << 30, 784, 0, 1}, SyntheticSpec{Kind::inputs, SIZE_MAX, SIZE_MAX, 0, 1},
        SyntheticSpec{Kind::classes, 1, 1U << 16, 1U << 16, 1},
        SyntheticSpec{Kind::tokens, 1, 8, std::size_t{1} << 25, 1}})
    error_of(ErrorKind::usage, [&] { make_synthetic(big); });
}

TEST_CASE("synthetic real targets are a function of the inputs, and lie between -1 and 1") {
  const DataNeeds real{.input_cols = 3, .classes = 0, .targets = false, .target_values = 2, .seed = 4, .model = "m"};
  const DataSplit split = make("synthetic:samples=50", real);
  const DataSplit again = make("synthetic:samples=50", real);
  std::set<float> different;
  for (std::size_t i = 0; i < 50; ++i) {
    const Sample s = sample(*split.train, i);
    CHECK(s == sample(*again.train, i));
    REQUIRE(s.values.size() == 2);
    for (const float value : s.values) CHECK(std::abs(value) <= 1);
    different.insert(s.values.begin(), s.values.end());
  }
  CHECK(different.size() > 90);
}
