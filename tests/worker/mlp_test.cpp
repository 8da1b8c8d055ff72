#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/tests/support/model_runner.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/layers/batch_norm.h>
#include <psring/worker/model/layers/gelu.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/mlp.h>

using namespace psring;
using namespace psring::worker;

namespace {

constexpr std::size_t kClasses = 3;

/// Holds what is asked of it: the layers of shared-tensor models.
class Names final : public Layer {
 public:
  explicit Names(std::vector<TensorSpec> list) : list_(std::move(list)) {}
  std::vector<TensorSpec> tensors() const override { return list_; }
  void forward(const Forward& /*pass*/) const override {}
  void backward(const Backward& /*pass*/) const override {}

 private:
  std::vector<TensorSpec> list_;
};

/// Linear, but its backward is wrong in one element of dW.
class Wrong final : public Layer {
 public:
  std::vector<TensorSpec> tensors() const override { return linear_.tensors(); }
  Shape output(Shape in) const override { return linear_.output(in); }
  void forward(const Forward& pass) const override { linear_.forward(pass); }
  void backward(const Backward& pass) const override {
    linear_.backward(pass);
    pass.gradients[0].data()[4] *= 1.05F;
  }

 private:
  Linear linear_{"fc", 3, 2, {}};
};

/// Like Linear, but overwrites its bias's gradient whatever beta says.
class Overwrites final : public Layer {
 public:
  std::vector<TensorSpec> tensors() const override { return linear_.tensors(); }
  Shape output(Shape in) const override { return linear_.output(in); }
  void forward(const Forward& pass) const override { linear_.forward(pass); }
  void backward(const Backward& pass) const override {
    bool fresh = true;
    const std::vector<Gradient> gradients{pass.gradients[0], {pass.gradients[1].span(), fresh}};
    Backward changed{pass.kernels, pass.parameters, gradients,  pass.x,      pass.y,
                     pass.dy,      pass.dx,         pass.saved, pass.scratch};
    linear_.backward(changed);
  }

 private:
  Linear linear_{"fc", 3, 2, {}};
};

Model stack(const std::vector<std::vector<std::string>>& names) {
  Model model;
  model.name = "stack";
  for (const auto& layer : names) {
    std::vector<TensorSpec> list;
    for (const std::string& name : layer) list.push_back({name, {2, 3}, {}});
    model.layers.push_back(std::make_unique<Names>(std::move(list)));
  }
  return model;
}

std::vector<std::string> unit_names(const FlatModel& flat) {
  std::vector<std::string> names;
  for (const UnitLayout& unit : flat.layout(1).units) names.push_back(unit.name);
  return names;
}

}  // namespace

TEST_CASE("backward agrees with finite differences") {
  for (const std::size_t rows : {1, 5})
    for (const bool bias : {false, true})
      for (const auto activation : {Linear::Activation::none, Linear::Activation::relu})
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          const Linear linear("fc", 7, 9, {.bias = bias, .activation = activation});
          CHECK(check_gradients(linear, {rows, 7}, {.seed = seed}).relative_error < 2e-3);
        }
  CHECK(check_gradients(Linear("wide", 100, 40, {}), {16, 100}).relative_error < 2e-3);
  CHECK(check_gradients(Gelu(), {4, 33}).relative_error < 2e-3);
  for (const auto activation : {BatchNorm::Activation::none, BatchNorm::Activation::relu})
    for (const std::size_t rows : {1, 2, 5, 130}) {
      const double epsilon = rows == 2 ? 1e-3 : 1e-2;  // two rows can be close: the slope changes fast there
      CHECK(check_gradients(BatchNorm("norm", 19, activation), {rows, 19}, {.epsilon = epsilon}).relative_error < 2e-3);
    }
}

TEST_CASE("a gradient check finds what is wrong, and names it") {
  CHECK_THROWS_WITH(check_gradients(Wrong(), {4, 3}), Catch::Contains("fc.weight[4]"));
  CHECK_THROWS_WITH(check_gradients(Overwrites(), {4, 3}), Catch::Contains("fc.bias[0]: one backward"));
}

TEST_CASE("a linear layer refuses another width, and starts as PyTorch's") {
  const Linear linear("fc", 16, 4, {});
  CHECK_THROWS_WITH(linear.output({3, 15}), Catch::Contains("fc") && Catch::Contains("16") && Catch::Contains("15"));
  REQUIRE(linear.tensors().size() == 2);
  CHECK(linear.tensors()[0].shape == std::vector<std::size_t>{4, 16});
  CHECK(linear.tensors()[0].init.kind == Init::Kind::uniform);
  CHECK(linear.tensors()[1].init.a == 0.25F);
  std::vector<Gemm> gemms;
  linear.gemms({8, 16}, {}, gemms);
  double flops = 0;
  for (const Gemm& g : gemms) flops += 2.0 * static_cast<double>(g.m * g.n * g.k);
  CHECK(flops == linear.flops({8, 16}, {}));
}

TEST_CASE("batch norm's buffers: moved by training that is lent them, read by evaluation") {
  const BatchNorm norm("norm", 2, BatchNorm::Activation::none);
  const auto kernels = make_cpu_kernels();
  std::vector<float> x{1, 10, 3, 10, 5, 40}, y(6), saved(norm.saved_floats({3, 2})),
      scratch(norm.scratch_floats({3, 2}));
  const std::vector<float> weight{2, 1}, bias{0, -1};
  const std::vector<std::span<const float>> parameters{weight, bias};
  std::vector<float> mean{0, 0}, variance{1, 1}, count{0};
  const std::vector<std::span<float>> buffers{mean, variance, count};
  const auto forward = [&](std::size_t rows, bool training, std::span<const std::span<float>> lent) {
    norm.forward({*kernels, parameters, {x.data(), rows, 2}, {y.data(), rows, 2}, saved, {}, scratch, training, lent});
  };
  forward(3, true, {});
  CHECK(count[0] == 0);
  CHECK(mean == std::vector<float>{0, 0});
  forward(3, true, buffers);
  CHECK(y[0] == Approx(-2 * 2 / std::sqrt(8.0 / 3)));
  CHECK(y[1] == Approx(-10 / std::sqrt(200.0) - 1));
  CHECK(count[0] == 1);
  CHECK(mean[0] == Approx(0.3));
  CHECK(mean[1] == Approx(2));
  CHECK(variance[0] == Approx(0.9 + 0.1 * 4));
  CHECK(variance[1] == Approx(0.9 + 0.1 * 300));
  forward(2, false, buffers);
  CHECK(count[0] == 1);
  CHECK(y[2] == Approx(2 * (3 - 0.3) / std::sqrt(1.3 + 1e-5)));
  forward(1, true, buffers);  // a single row has no variance
  CHECK(y[0] == 0);
  CHECK(y[1] == -1);
  CHECK(count[0] == 2);
  CHECK(mean[0] == Approx(0.9 * 0.3 + 0.1));
  CHECK(variance[0] == Approx(1.3));
  CHECK_THROWS_WITH(norm.output({3, 4}), Catch::Contains("norm") && Catch::Contains("2") && Catch::Contains("4"));
}

TEST_CASE("buffers have names of their own, and ids after the parameters'") {
  Model model = make_bn_mlp(Spec::parse("--model", "bn-mlp:6-5-4-3"));
  const UnitLayout layout = buffer_layout(model);
  REQUIRE(layout.tensors.size() == 6);
  CHECK(layout.tensors[0].spec.name == "norms.0.running_mean");
  CHECK(layout.tensors[0].id == 8);
  CHECK(layout.tensors[5].spec.name == "norms.1.num_batches_tracked");
  CHECK(layout.tensors[5].spec.shape.empty());
  CHECK(unit_names(FlatModel(model, group_layers(model, "layer"))) ==
        std::vector<std::string>{"layers.0", "norms.0", "layers.1", "norms.1", "layers.2"});
  CHECK(FlatModel(model, group_layers(model, "block")).units() == 3);
  CHECK(buffer_layout(make_mlp(Spec::parse("--model", "mlp:6-3"))).elements == 0);
  model.layers.push_back(std::make_unique<BatchNorm>("norms.1", 3, BatchNorm::Activation::none));
  CHECK_THROWS_WITH(buffer_layout(model), Catch::Contains("norms.1.running_mean") && Catch::Contains("twice"));
}

TEST_CASE("GELU agrees with f64, at its ends too") {
  std::vector<float> x;
  for (int i = -150000; i <= 150000; ++i) x.push_back(static_cast<float>(i) * 1e-4F);
  std::vector<float> y(x.size()), ones(x.size(), 1.0F), dx(x.size());
  gelu_forward(x, y);
  gelu_backward(x, ones, dx);
  double worst_y = 0;
  double worst_dx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double c = std::sqrt(2 / M_PI);
    const double t = std::tanh(c * (v + 0.044715 * v * v * v));
    const double slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
    worst_y = std::max(worst_y, std::abs(y[i] - 0.5 * v * (1 + t)) / std::max(1.0, std::abs(v)));
    worst_dx = std::max(worst_dx, std::abs(dx[i] - slope));
  }
  CHECK(worst_y < 1e-6);
  CHECK(worst_dx < 3e-6);

  const std::vector<float> ends{1e20F, -1e20F, 3e38F, 0, std::nanf(""), -87, 1e-30F};
  std::vector<float> out(ends.size()), slope(ends.size()), one(ends.size(), 1.0F);
  gelu_forward(ends, out);
  gelu_backward(ends, one, slope);
  CHECK(out[0] == 1e20F);
  CHECK(std::abs(out[1]) < 1e-10F);
  CHECK(out[2] == 3e38F);
  CHECK(out[3] == 0);
  CHECK(std::isnan(out[4]));
  CHECK(slope[0] == 1);
  CHECK(std::abs(slope[1]) < 1e-10F);
  CHECK(std::isnan(slope[4]));
  CHECK(slope[6] == Approx(0.5));
}

TEST_CASE("GELU gives the same bits at each place, length and alignment, in place too") {
  const CounterRng rng({.seed = 9});
  std::vector<float> x(1000), y(1000), dy(1000, 0.5F), dx(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3 * rng.normal(i);
  gelu_forward(x, y);
  gelu_backward(x, dy, dx);
  for (std::size_t begin = 0; begin < 40; ++begin) {
    const std::size_t n = 1 + begin * 7;
    std::vector<float> one(x.begin() + begin, x.begin() + begin + n);
    std::vector<float> gradient(n, 0.5F);
    gelu_backward(one, gradient, gradient);
    gelu_forward(one, one);
    CHECK(std::equal(one.begin(), one.end(), y.begin() + begin));
    CHECK(std::equal(gradient.begin(), gradient.end(), dx.begin() + begin));
  }
}

TEST_CASE("losses agree with finite differences and with their definition") {
  const CounterRng rng({.seed = 4});
  std::vector<float> y(5 * 7), dy(5 * 7);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = 2 * rng.normal(i);
  const std::vector<std::int32_t> targets{0, 6, 3, 3, 1};
  for (const bool entropy : {true, false}) {
    const auto loss = entropy ? make_cross_entropy() : make_mean_square();
    const LossResult result = loss->evaluate({y.data(), 5, 7}, targets, 0.25F, {dy.data(), 5, 7});
    CHECK(result.rows == 5);
    double expected = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 7; ++j) {
        const double v = y[i * 7 + j];
        sum += entropy ? std::exp(v) : v * v / 7;
      }
      expected += entropy ? std::log(sum) - y[i * 7 + targets[i]] : sum;
    }
    CHECK(result.loss_sum == Approx(expected).epsilon(1e-6));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float before = y[i];
      y[i] = before + 0.01F;
      const double above = loss->evaluate({y.data(), 5, 7}, targets, 0.25F, {}).loss_sum;
      y[i] = before - 0.01F;
      const double below = loss->evaluate({y.data(), 5, 7}, targets, 0.25F, {}).loss_sum;
      y[i] = before;
      CHECK(dy[i] == Approx(0.25 * (above - below) / 0.02).margin(2e-5));
    }
  }
}

TEST_CASE("cross-entropy counts, stays finite, refuses foreign targets, and returns NaN") {
  const auto loss = make_cross_entropy();
  std::vector<float> y{1000, -1000, 0, 5, 5, 0};  // the second row's largest stands twice: the first one counts
  std::vector<float> dy(6);
  const LossResult result = loss->evaluate({y.data(), 2, 3}, std::vector<std::int32_t>{0, 0}, 1, {dy.data(), 2, 3});
  CHECK(result.correct == 2);
  CHECK(result.loss_sum == Approx(std::log(2 + std::exp(-5.0))));
  CHECK(dy[0] == 0);
  CHECK(loss->evaluate({y.data(), 2, 3}, std::vector<std::int32_t>{1, 1}, 1, {}).loss_sum > 2000);
  for (const std::int32_t bad : {-1, 3}) {
    const std::vector<std::int32_t> targets{0, bad};
    try {
      loss->evaluate({y.data(), 2, 3}, targets, 1, {});
      FAIL("a target of " << bad << " was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
    }
  }
  y[4] = std::nanf("");
  CHECK(std::isnan(loss->evaluate({y.data(), 2, 3}, std::vector<std::int32_t>{0, 0}, 1, {}).loss_sum));
}

TEST_CASE("a model's text is checked, and the error names --model") {
  for (const char* bad : {"mlp", "mlp:6", "mlp:6-x-3", "mlp:6-0-3", "mlp:6--3", "mlp:6-3-", "mlp:-3",
                          "mlp:6-99999999999999999999-3", "mlp:dim=6"}) {
    INFO(bad);
    CHECK_THROWS_WITH(make_mlp(Spec::parse("--model", bad)), Catch::Contains("--model"));
    CHECK_THROWS_WITH(make_bn_mlp(Spec::parse("--model", bad)), Catch::Contains("--model"));
  }
  for (const char* bad : {"gelu-mlp:dim=6,layers=0", "gelu-mlp:dim=6,depth=2", "gelu-mlp:6"}) {
    INFO(bad);
    CHECK_THROWS_WITH(make_gelu_mlp(Spec::parse("--model", bad)), Catch::Contains("--model"));
  }
}

TEST_CASE("units: layers, blocks, and what shares a tensor") {
  const Model mlp = make_mlp(Spec::parse("--model", "mlp:6-5-4-3"));
  const FlatModel layers(mlp, group_layers(mlp, "layer"));
  CHECK(unit_names(layers) == std::vector<std::string>{"layers.0", "layers.1", "layers.2"});
  const FlatModel whole(mlp, {{2, 0}, {1}});
  REQUIRE(whole.units() == 2);
  CHECK(unit_names(whole) == std::vector<std::string>{"layers", "layers.1"});
  CHECK(whole.tensors(0)[2].id == 4);
  CHECK(std::vector<std::size_t>(whole.tensor_indices(2).begin(), whole.tensor_indices(2).end()) ==
        std::vector<std::size_t>{2, 3});
  CHECK_THROWS_WITH(group_layers(mlp, "tensor"), Catch::Contains("--units") && Catch::Contains("tensor"));
  CHECK_THROWS_AS(FlatModel(mlp, {{0}, {1}}), Error);
  CHECK_THROWS_AS(FlatModel(mlp, {{0}, {1}, {2, 1}}), Error);

  const Model gelu = make_gelu_mlp(Spec::parse("--model", "gelu-mlp:dim=4,layers=2"));
  const FlatModel blocks(gelu, group_layers(gelu, "block"));
  CHECK(blocks.units() == 2);
  CHECK(blocks.unit_of(1) == kNoUnit);

  Model gpt = stack({{"wte", "wpe"}, {"h.0.a", "h.0.ln.b"}, {"h.0.c"}, {"h.1.a"}, {"ln_f"}, {"wte"}});
  gpt.blocks = {{1, 2}, {3}, {4, 5}};
  const FlatModel shared(gpt, group_layers(gpt, "block"));
  CHECK(unit_names(shared) == std::vector<std::string>{"root", "h.0", "h.1"});
  CHECK(shared.unit_of(0) == shared.unit_of(5));
  CHECK(shared.unit_of(4) == 0);
  CHECK(shared.layers_of(0).front() == 0);
  CHECK(shared.layers_of(0).back() == 5);
  const Layout layout = shared.layout(3);
  CHECK(layout.units[0].tensors.size() == 3);
  CHECK(layout.units[0].elements == 3 * kCut);
  std::set<std::uint32_t> ids;
  for (const UnitLayout& unit : layout.units)
    for (const TensorLayout& tensor : unit.tensors) CHECK(ids.insert(tensor.id).second);
  CHECK(ids.size() == 7);

  Model clash = stack({{"w"}});
  clash.layers.push_back(std::make_unique<Names>(std::vector<TensorSpec>{{"w", {3, 2}, {}}}));
  CHECK_THROWS_WITH(FlatModel(clash, {{0}, {1}}), Catch::Contains("w") && Catch::Contains("shapes"));
}

TEST_CASE("units: any number of layers, all, and sets of those that have parameters") {
  using Groups = std::vector<std::vector<std::size_t>>;
  const Model gelu = make_gelu_mlp(Spec::parse("--model", "gelu-mlp:dim=4,layers=4"));  // a GELU after each
  REQUIRE(gelu.layers.size() == 8);
  CHECK(group_layers(gelu, "root") == Groups{{0, 2, 4, 6}, {1}, {3}, {5}, {7}});
  CHECK(group_layers(gelu, "3") == Groups{{0, 2, 4}, {6}, {1}, {3}, {5}, {7}});
  CHECK(group_layers(gelu, "9") == group_layers(gelu, "root"));
  CHECK(group_layers(gelu, "3+0,1") == Groups{{6, 0}, {2}, {1}, {3}, {4}, {5}, {7}});
  CHECK(FlatModel(gelu, group_layers(gelu, "0+3,1+2")).units() == 2);
  for (const char* bad : {"0", "-1", "1.5", "", "0+", "0+1,", "+", "0+x", "0+1+1", "0+1,1+2", "3+4"}) {
    INFO(bad);
    CHECK(test::error_of(ErrorKind::usage, [&] { group_layers(gelu, bad); }).starts_with("--units"));
  }
  const Model shared = stack({{"wte"}, {"a"}, {"b"}, {"wte"}});
  CHECK(unit_names(FlatModel(shared, group_layers(shared, "0+1"))) == std::vector<std::string>{"root", "b"});
}

TEST_CASE("shared tensors lend one place, and one freshness") {
  const Model model = stack({{"a"}, {"b"}, {"a"}});
  const FlatModel flat(model, group_layers(model, "layer"));
  REQUIRE(flat.units() == 2);
  Binding binding(flat);
  std::vector<float> root(kCut), other(kCut), small(5);
  binding.bind_parameters(0, root);
  binding.bind_gradients(0, root);
  CHECK(binding.parameters(0)[0].data() == binding.parameters(2)[0].data());
  CHECK(*binding.gradients(0)[0].fresh);
  *binding.gradients(2)[0].fresh = false;
  CHECK_FALSE(*binding.gradients(0)[0].fresh);
  binding.bind_gradients(0, other);  // moved: what was written counts still
  CHECK_FALSE(*binding.gradients(0)[0].fresh);
  binding.reset_fresh(1);
  CHECK_FALSE(*binding.gradients(0)[0].fresh);
  binding.reset_fresh();
  CHECK(*binding.gradients(0)[0].fresh);
  CHECK_THROWS_AS(binding.bind_parameters(1, small), Error);
}

TEST_CASE("micro-batches add up to the batch, and a step's bits depend on nothing that ran before") {
  const Model model = make_mlp(Spec::parse("--model", "mlp:6-9-8-3"));
  test::ModelRunner runner(model, 8);
  runner.randomise(kClasses, 3);
  const LossResult all = runner.train(0, 8, 1.0F / 8, true);
  const std::vector<float> whole = runner.gradient();
  const LossResult first = runner.train(0, 3, 1.0F / 8, true);
  const LossResult second = runner.train(3, 5, 1.0F / 8, false);  // a smaller batch in the same network
  const std::vector<float> summed = runner.gradient();
  CHECK(first.loss_sum + second.loss_sum == Approx(all.loss_sum));
  CHECK(first.correct + second.correct == all.correct);
  REQUIRE(whole.size() == summed.size());
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(summed[i] == Approx(whole[i]).epsilon(1e-5).margin(1e-7));
  runner.train(0, 8, 1.0F / 8, true);
  CHECK(runner.gradient() == whole);
}

TEST_CASE("a whole model's gradient is the loss's slope") {
  const Model model = make_gelu_mlp(Spec::parse("--model", "gelu-mlp:dim=8,layers=2"));
  test::ModelRunner runner(model, 4);
  runner.randomise(0, 3);
  runner.train(0, 4, 0.25F, true);
  const std::vector<float> gradient = runner.gradient();
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double slope = (runner.loss_at(i, 0.01F) - runner.loss_at(i, -0.01F)) / 0.02 / 4;
    CHECK(gradient[i] == Approx(slope).epsilon(1e-3).margin(2e-6));
  }
}

TEST_CASE("a network books its activations, and refuses what does not fit") {
  const Model model = make_gelu_mlp(Spec::parse("--model", "gelu-mlp:dim=64,layers=3"));
  MemoryLedger ledger;
  const auto kernels = make_cpu_kernels();
  {
    HostNetwork network(model, *kernels, ledger, {.max_batch = 16});
    // The input, y of six layers, and two gradients.
    CHECK(ledger.current_bytes(Category::activations) == 9 * 16 * 64 * sizeof(float));
    CHECK(network.flops(16) == 2.0 * 16 * 64 * 64 * (3 * 3 - 1));
    CHECK_THROWS_AS(network.begin(17), Error);
    CHECK_THROWS_AS(network.begin(0), Error);
  }
  CHECK(ledger.current_bytes(Category::activations) == 0);
  Model broken = make_mlp(Spec::parse("--model", "mlp:6-5-3"));
  std::swap(broken.layers[0], broken.layers[1]);
  CHECK_THROWS_AS(HostNetwork(broken, *kernels, ledger, {.max_batch = 2}), Error);
  CHECK(ledger.current_bytes(Category::activations) == 0);
}
