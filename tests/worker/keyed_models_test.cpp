// Models of tables: their data and keys, layers, losses and metrics.
#include <cmath>
#include <map>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/tests/support/keyed_data.h>
#include <psring/tests/support/values.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/data/key_reader.h>
#include <psring/worker/model/dlrm.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using psring::test::error_of;
using psring::test::normal_values;
using worker::test::KeyedData;

TEST_CASE("keys are read table by table, and hashed") {
  const KeyedData data({{{7}, {8, 9}, {}}, {{1}, {}, {~std::uint64_t{0}}}}, {{"a"}, {"b", 2}, {"c"}});
  KeyReader reader(data, {{0, 2}, {2, 3}});
  CHECK(reader.most_keys(0) == 3);
  CHECK(reader.most_keys(1) == 1);
  std::vector<std::vector<std::uint64_t>> keys(2);
  std::vector<std::size_t> bags(2);
  const auto read = [&](std::size_t sample) {
    reader.read(
        sample, [&](std::size_t table, std::uint64_t key) { keys[table].push_back(optim::unmix64(key)); },
        [&](std::size_t table) { ++bags[table]; });
  };
  read(0);
  read(1);
  CHECK(keys[0] == std::vector<std::uint64_t>{7, optim::fused_key(1, 8), optim::fused_key(1, 9), 1});
  CHECK(keys[1] == std::vector<std::uint64_t>{~std::uint64_t{0}});
  CHECK(bags == std::vector<std::size_t>{4, 2});
  std::vector<std::uint64_t> shared;  // equal ids of both fields are one key
  KeyReader(data, {{{0, 2}, true}})
      .read(
          0, [&](std::size_t, std::uint64_t key) { shared.push_back(optim::unmix64(key)); }, [](std::size_t) {});
  CHECK(shared == std::vector<std::uint64_t>{7, 8, 9});
  const KeyedData wide({{{std::uint64_t{1} << 56}, {}}}, {{"a"}, {"b"}});
  KeyReader refusing(wide, {{0, 2}});
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        refusing.read(
                            0, [](std::size_t, std::uint64_t) {}, [](std::size_t) {});
                      }),
             Contains("field 'a'") && Contains("more than 56 bits"));
  const KeyedData fields({}, std::vector<KeyField>(257, {"a"}));
  CHECK_THAT(error_of(ErrorKind::bug, [&] { KeyReader(fields, {{0, 257}}); }), Contains("a table of 257 key fields"));
  CHECK_NOTHROW(KeyReader(fields, {{{0, 257}, true}}));
  const KeyedData many({{{1, 2}}}, {{"a"}});
  KeyReader counting(many, {{0, 1}});
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        counting.read(
                            0, [](std::size_t, std::uint64_t) {}, [](std::size_t) {});
                      }),
             Contains("2 keys in field 'a', at most 1 expected"));
}

TEST_CASE("criteo-like data are a function of the seed, and their oracle is known") {
  const CriteoLikeSpec spec{.samples = 20'000, .dense = 4, .features = 8, .seed = 3};
  const DataSplit split = make_criteo_like(spec);
  CHECK(split.train->size() == 20'000);
  CHECK(split.test->size() == 2'000);
  const CriteoLike clicks(spec);
  CHECK(clicks.values(0) == 10);
  CHECK(clicks.values(7) == 1'000'000);
  std::vector<float> logits;
  std::vector<std::int32_t> classes;
  std::size_t clicked = 0;
  std::map<std::uint64_t, std::size_t> first_field;
  for (std::size_t sample = 0; sample < spec.samples; ++sample) {
    logits.push_back(static_cast<float>(clicks.logit(sample)));
    std::vector<float> input(4);
    std::int32_t target = 0;
    split.train->read(sample, {input, std::span(&target, 1)});
    classes.push_back(target);
    clicked += target == 1 ? 1 : 0;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> counts(8);
    split.train->read_keys(sample, keys, counts);
    REQUIRE(keys.size() == 8);
    ++first_field[keys[0]];
    for (std::size_t f = 0; f < 8; ++f) REQUIRE((keys[f] >= 1 && keys[f] <= clicks.values(f)));
  }
  const double rate = static_cast<double>(clicked) / 20'000;
  const double auc = area_under_curve(logits, classes);
  CAPTURE(rate, auc);
  CHECK(rate > 0.2);
  CHECK(rate < 0.4);
  CHECK(auc > 0.78);
  CHECK(auc < 0.88);
  CHECK(first_field.size() == 10);
  const double two = static_cast<double>(first_field[1]) / static_cast<double>(first_field[2]);
  CHECK(two == Approx((1 - std::pow(2, -0.05)) / (std::pow(2, -0.05) - std::pow(3, -0.05))).epsilon(0.1));
}

TEST_CASE("the area under the curve, with ties") {
  const std::vector<float> outputs{0.1F, 0.4F, 0.35F, 0.8F, 0.4F};
  const std::vector<std::int32_t> classes{0, 0, 1, 1, 1};
  // Pairs: 0.35 beats 0.1; 0.8 beats both; 0.4 beats 0.1 and ties with 0.4.
  CHECK(area_under_curve(outputs, classes) == Approx((1 + 2 + 1.5) / 6));
  CHECK(area_under_curve(std::vector<float>{1, 2}, std::vector<std::int32_t>{1, 1}) == 0.5);
}

TEST_CASE("binary cross-entropy") {
  const auto loss = make_binary_cross_entropy();
  std::vector<float> y{2, -30, 50};
  const std::vector<std::int32_t> targets{1, 1, 0};
  std::vector<float> dy(3);
  const LossResult result = loss->evaluate({y.data(), 3, 1}, Targets(targets), 0.5F, {dy.data(), 3, 1});
  CHECK(result.loss_sum == Approx(std::log1p(std::exp(-2.0)) + 30 + 50));
  CHECK(result.correct == 1);
  CHECK(dy[0] == Approx(0.5 * (1 / (1 + std::exp(-2.0)) - 1)));
  CHECK(dy[1] == Approx(-0.5));
  CHECK(dy[2] == Approx(0.5));
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        loss->evaluate({y.data(), 1, 1}, Targets(std::vector<std::int32_t>{2}), 1, {});
                      }),
             Contains("target 2"));
}

TEST_CASE("an embedding bag sums rows, and a row's gradient is the sum over its occurrences") {
  const EmbeddingBag bag(0, 2, 3);
  CHECK(bag.output({4, 1}).cols == 6);
  const auto kernels = make_cpu_kernels(1, DType::f32);
  const std::vector<float> rows = normal_values(4 * 3, 1);
  std::vector<float> gradients(4 * 3);
  const std::vector<std::uint32_t> offsets{0, 2, 2, 3, 4};  // two samples of two features; the second bag is empty
  const std::vector<std::uint32_t> lookups{3, 1, 3, 0};
  TableView view{
      .rows = {rows.data(), 4, 3}, .gradients = {gradients.data(), 4, 3}, .offsets = offsets, .lookups = lookups};
  std::vector<float> x(2);
  std::vector<float> y(12);
  Forward forward{.kernels = *kernels,
                  .parameters = {},
                  .x = {x.data(), 2, 1},
                  .y = {y.data(), 2, 6},
                  .saved = {},
                  .saved_activations = {},
                  .scratch = {}};
  forward.table = &view;
  bag.forward(forward);
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(y[j] == rows[9 + j] + rows[3 + j]);
    CHECK(y[3 + j] == 0);
    CHECK(y[6 + j] == rows[9 + j]);
    CHECK(y[9 + j] == rows[j]);
  }
  const std::vector<float> dy = normal_values(12, 2);
  Backward backward{.kernels = *kernels,
                    .parameters = {},
                    .gradients = {},
                    .x = {x.data(), 2, 1},
                    .y = {y.data(), 2, 6},
                    .dy = {dy.data(), 2, 6},
                    .dx = {},
                    .saved = {},
                    .saved_activations = {},
                    .scratch = {}};
  backward.table = &view;
  bag.backward(backward);
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(gradients[9 + j] == dy[j] + dy[6 + j]);
    CHECK(gradients[3 + j] == dy[j]);
    CHECK(gradients[6 + j] == 0);
    CHECK(gradients[j] == dy[9 + j]);
  }
}

TEST_CASE("the products of pairs, and their gradient by differences") {
  const Interaction layer(3, 4);
  const auto kernels = make_cpu_kernels(1, DType::f32);
  std::vector<float> inputs = normal_values(2 * 4 * 4, 1);  // dense, then rows, of two samples each
  const std::vector<float> dy = normal_values(2 * 10, 2);
  const auto forward = [&](std::vector<float>& y) {
    const ConstMatrix in[] = {{inputs.data(), 2, 4}, {inputs.data() + 8, 2, 12}};
    Forward pass{.kernels = *kernels,
                 .parameters = {},
                 .x = in[0],
                 .y = {y.data(), 2, 10},
                 .saved = {},
                 .saved_activations = {},
                 .scratch = {}};
    pass.inputs = in;
    layer.forward(pass);
  };
  const auto loss = [&] {
    std::vector<float> y(20);
    forward(y);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    return sum;
  };
  const ConstMatrix in[] = {{inputs.data(), 2, 4}, {inputs.data() + 8, 2, 12}};
  std::vector<float> y(20);
  forward(y);
  std::vector<float> dx(32);
  bool fresh[] = {true, true};
  const Gradient gradients[] = {{std::span(dx).first(8), fresh[0]}, {std::span(dx).subspan(8), fresh[1]}};
  Backward pass{.kernels = *kernels,
                .parameters = {},
                .gradients = {},
                .x = in[0],
                .y = {y.data(), 2, 10},
                .dy = {dy.data(), 2, 10},
                .dx = {dx.data(), 2, 4},
                .saved = {},
                .saved_activations = {},
                .scratch = {}};
  pass.inputs = in;
  pass.d_inputs = gradients;
  layer.backward(pass);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float before = inputs[i];
    inputs[i] = before + 0.01F;
    const double above = loss();
    inputs[i] = before - 0.01F;
    const double below = loss();
    inputs[i] = before;
    CHECK(dx[i] == Approx((above - below) / 0.02).epsilon(1e-3).margin(1e-3));
  }
}

TEST_CASE("a model's specification is checked") {
  const auto refused = [](const std::string& text) {
    return error_of(ErrorKind::usage, [&] { make_dlrm(Spec::parse("--model", text)); });
  };
  CHECK_THAT(refused("dlrm:features=257"), Contains("at most 256 features"));
  CHECK_THAT(refused("dlrm:dim=8,bottom=4-4"), Contains("bottom ends in a width of 4, dim=8 expected"));
  CHECK_THAT(refused("dlrm:top=4-x"), Contains("top: expected WIDTH-WIDTH"));
  CHECK_THAT(refused("dlrm:tables=2"), Contains("unknown key 'tables'"));
}
