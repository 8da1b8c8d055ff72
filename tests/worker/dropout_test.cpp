#include <cmath>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/device/kernels.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/layers/dropout.h>
#include <psring/worker/model/mlp.h>

using namespace psring;
using namespace psring::worker;

namespace {

std::vector<float> dropped(const Dropout& layer, std::size_t samples, std::size_t cols, const Randomness& randomness,
                           bool training = true, std::size_t rows_each = 1) {
  const auto kernels = make_cpu_kernels();
  const std::size_t rows = samples * rows_each;
  const std::vector<float> x(rows * cols, 1.0F);
  std::vector<float> y(rows * cols, NAN);
  std::vector<float> saved(layer.saved_floats({rows, cols}));
  layer.forward({*kernels,
                 {},
                 {x.data(), rows, cols},
                 {y.data(), rows, cols},
                 saved,
                 {},
                 {},
                 training,
                 {},
                 DType::f32,
                 {},
                 samples,
                 randomness});
  return y;
}

}  // namespace

TEST_CASE("dropout keeps the mean, drops the given share, and passes on in evaluation") {
  const Dropout layer(0.25);
  const std::vector<float> y = dropped(layer, 100, 1000, {.seed = 3});
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / 1e5;
  CHECK(mean == Approx(1).margin(0.01));  // standard deviation 0.0018
  for (const float value : y) CHECK((value == 0 || value == 1.0F / 0.75F));
  CHECK(dropped(layer, 2, 5, {}, false) == std::vector<float>(10, 1.0F));
  CHECK(dropped(Dropout(0), 2, 5, {}) == std::vector<float>(10, 1.0F));
}

TEST_CASE("what is dropped depends on seed, step, layer and the sample's place in the global batch alone") {
  const Dropout layer(0.5);
  constexpr std::size_t kCols = 37;
  const std::vector<float> whole = dropped(layer, 8, kCols, {.seed = 7, .step = 4, .layer = 2});
  const auto row = [&](const std::vector<float>& of, std::size_t i) {
    return std::vector<float>(of.begin() + static_cast<std::ptrdiff_t>(i * kCols),
                              of.begin() + static_cast<std::ptrdiff_t>((i + 1) * kCols));
  };
  // Worker 1 of 2 has the odd samples; its second micro-batch begins with its third sample.
  const auto micro = dropped(layer, 2, kCols, {.seed = 7, .step = 4, .first = 1 + 2 * 2, .stride = 2, .layer = 2});
  CHECK(row(micro, 0) == row(whole, 5));
  CHECK(row(micro, 1) == row(whole, 7));
  CHECK(row(whole, 0) != row(whole, 1));
  CHECK(dropped(layer, 8, kCols, {.seed = 8, .step = 4, .layer = 2}) != whole);
  CHECK(dropped(layer, 8, kCols, {.seed = 7, .step = 5, .layer = 2}) != whole);
  CHECK(dropped(layer, 8, kCols, {.seed = 7, .step = 4, .layer = 3}) != whole);
  // Two rows a sample, as in text: the rows together are the sample.
  const std::vector<float> text = dropped(layer, 4, kCols, {.seed = 7, .step = 4, .layer = 2}, true, 2);
  CHECK(row(text, 0) == row(whole, 0));
  CHECK(row(text, 1) != row(whole, 1));
}

TEST_CASE("dropout's backward agrees with finite differences") {
  CHECK(check_gradients(Dropout(0.3), Shape{5, 33}).relative_error < 2e-3);
}

TEST_CASE("a model's dropout is a word of its widths") {
  const Model model = make_mlp(Spec::parse("--model", "mlp:8-d0.1-6-d0.5-4"));
  CHECK(model.layers.size() == 4);
  CHECK(model.blocks == std::vector<std::vector<std::size_t>>{{0, 1, 2}, {3}});
  for (const char* wrong : {"mlp:8-d1-4", "mlp:8-d-4", "mlp:8-d0.1x-4", "mlp:8-d-0.1-4", "mlp:8-4-d0.1", "mlp:d0.1-8-4",
                            "mlp:8-d0.1-d0.1-4"})
    CHECK_THROWS(make_mlp(Spec::parse("--model", wrong)));
}
