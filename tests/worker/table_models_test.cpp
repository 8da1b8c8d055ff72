// Layers and losses of models with tables, beside naive references and finite differences.
#include <cmath>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/dot_products.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/factorization.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using test::error_of;
using test::normal_values;

namespace {

/// y of a layer for these inputs and a bias.
std::vector<float> output(const Layer& layer, std::span<const ConstMatrix> inputs, std::size_t cols, float bias) {
  const auto kernels = make_cpu_kernels(1, DType::f32);
  std::vector<float> y(inputs[0].rows * cols);
  std::vector<float> scratch(layer.scratch_floats({inputs[0].rows, inputs[0].cols}));
  const std::span<const float> tensor(&bias, 1);
  layer.forward({.kernels = *kernels,
                 .parameters = {&tensor, 1},
                 .x = inputs[0],
                 .y = {y.data(), inputs[0].rows, cols},
                 .saved = {},
                 .saved_activations = {},
                 .scratch = scratch,
                 .inputs = inputs.size() > 1 ? inputs : std::span<const ConstMatrix>()});
  return y;
}

}  // namespace

TEST_CASE("a factorization machine adds weights and the products of all pairs") {
  const std::size_t features = GENERATE(1, 2, 7);
  const std::size_t dim = GENERATE(1, 3, 8, 17);
  const std::size_t width = dim + 1;
  const std::vector<float> x = normal_values(5 * features * width, 1);
  const FactorizationMachine machine(features, dim);
  const ConstMatrix in(x.data(), 5, features * width);
  const std::vector<float> y = output(machine, std::span(&in, 1), 1, 0.25F);
  for (std::size_t r = 0; r < 5; ++r) {
    double expected = 0.25;
    for (std::size_t f = 0; f < features; ++f) {
      const float* const own = in.row(r) + f * width;
      expected += static_cast<double>(own[0]);
      for (std::size_t g = 0; g < f; ++g)
        for (std::size_t k = 1; k < width; ++k)
          expected += static_cast<double>(own[k]) * static_cast<double>(in.row(r)[g * width + k]);
    }
    CHECK(y[r] == Approx(expected).epsilon(1e-5).margin(1e-5));
  }
  CHECK_NOTHROW(check_gradients(machine, {6, features * width}));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { machine.output({1, features * width + 1}); }), Contains("reads rows of"));
}

TEST_CASE("products of one vector and several") {
  const std::size_t count = GENERATE(1, 6);
  const std::size_t width = GENERATE(1, 8, 13);
  const std::vector<float> one = normal_values(4 * width, 1);
  const std::vector<float> many = normal_values(4 * count * width, 2);
  const DotProducts products(count, width);
  const ConstMatrix in[] = {{one.data(), 4, width}, {many.data(), 4, count * width}};
  const std::vector<float> y = output(products, in, count, -0.5F);
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t k = 0; k < count; ++k) {
      double expected = -0.5;
      for (std::size_t i = 0; i < width; ++i)
        expected += static_cast<double>(one[r * width + i]) * static_cast<double>(many[(r * count + k) * width + i]);
      CHECK(y[r * count + k] == Approx(expected).epsilon(1e-5).margin(1e-5));
    }
  const Shape shapes[] = {{6, width}, {6, count * width}};
  CHECK_NOTHROW(check_gradients(products, shapes));
  const Shape wrong[] = {{6, width}, {6, count * width + 1}};
  CHECK_THAT(error_of(ErrorKind::usage, [&] { products.output_of(wrong); }), Contains("multiplies vectors"));
}

TEST_CASE("a bag's mean") {
  const EmbeddingBag bag(0, 1, 2, EmbeddingBag::Mode::mean);
  const auto kernels = make_cpu_kernels(1, DType::f32);
  const std::vector<float> rows{1, 2, 3, 5, 8, 13};
  std::vector<float> gradients(6);
  const std::vector<std::uint32_t> offsets{0, 3, 3, 4};
  const std::vector<std::uint32_t> lookups{0, 2, 2, 1};
  const TableView view{
      .rows = {rows.data(), 3, 2}, .gradients = {gradients.data(), 3, 2}, .offsets = offsets, .lookups = lookups};
  std::vector<float> y(6);
  bag.forward({.kernels = *kernels,
               .parameters = {},
               .x = {nullptr, 3, 0},
               .y = {y.data(), 3, 2},
               .saved = {},
               .saved_activations = {},
               .scratch = {},
               .table = &view});
  CHECK(y == std::vector<float>{17.0F / 3, 28.0F / 3, 0, 0, 3, 5});
  const std::vector<float> dy{3, 6, 1, 1, 5, 7};
  bag.backward({.kernels = *kernels,
                .parameters = {},
                .gradients = {},
                .x = {nullptr, 3, 0},
                .y = {y.data(), 3, 2},
                .dy = {dy.data(), 3, 2},
                .dx = {},
                .saved = {},
                .saved_activations = {},
                .scratch = {},
                .table = &view});
  const std::vector<float> expected{1, 2, 5, 7, 2, 4};
  for (std::size_t i = 0; i < 6; ++i) CHECK(gradients[i] == Approx(expected[i]));
}

TEST_CASE("the loss of negative sampling") {
  const auto loss = make_negative_sampling();
  std::vector<float> y{2, -1, 30, -40, 0, 0};
  std::vector<float> dy(6);
  const LossResult result = loss->evaluate({y.data(), 2, 3}, {}, 0.5F, {dy.data(), 2, 3});
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  CHECK(result.rows == 2);
  CHECK(result.loss_sum == Approx(softplus(-2) + softplus(-1) + 30 + 40 + 2 * std::log(2.0)));
  CHECK(dy[0] == Approx(0.5 * (1 / (1 + std::exp(-2.0)) - 1)));
  CHECK(dy[1] == Approx(0.5 / (1 + std::exp(1.0))));
  CHECK(dy[2] == Approx(0.5));
  CHECK(dy[3] == Approx(-0.5));
  CHECK(dy[4] == Approx(0.25));
  CHECK(loss->evaluate({y.data(), 2, 3}, {}, 1, {}).loss_sum == result.loss_sum);
}

TEST_CASE("the root of the mean square of the error") {
  const std::vector<float> outputs{1, 2, 4};
  const std::vector<float> values{1, 4, 3};
  CHECK(make_root_mean_square().of_all(outputs, {{}, {values.data(), 3, 1}}) == Approx(std::sqrt(5.0 / 3)));
}

TEST_CASE("specifications of models with tables are checked") {
  const auto refused = [](Model (*make)(const Spec&), const std::string& text) {
    return error_of(ErrorKind::usage, [&] { make(Spec::parse("--model", text)); });
  };
  CHECK_THAT(refused(make_fm, "fm:features=257"), Contains("at most 256 features"));
  CHECK_THAT(refused(make_fm, "fm:dim=8192"), Contains("a dim of 8191"));
  CHECK_THAT(refused(make_mf, "mf:features=3"), Contains("unknown key 'features'"));
  CHECK_THAT(refused(make_two_tower, "two-tower:mode=max"), Contains("expected mode=sum or mode=mean"));
  CHECK_THAT(refused(make_skip_gram, "skip-gram:negatives=0"), Contains("negatives"));
  CHECK_THAT(refused(make_skip_gram, "skip-gram:negatives=256"), Contains("at most 256 features"));
  CHECK(make_fm(Spec::parse("--model", "fm:dense=0,features=3")).layers.size() == 2);
}
