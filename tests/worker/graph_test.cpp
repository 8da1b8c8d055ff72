#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/model_runner.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/layers/joins.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/mlp.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;

namespace {

std::unique_ptr<Layer> linear(const std::string& name, std::size_t in, std::size_t out, bool relu = true) {
  const auto activation = relu ? Linear::Activation::relu : Linear::Activation::none;
  return std::make_unique<Linear>(name, in, out, Linear::Options{.bias = true, .activation = activation});
}

Model empty(std::size_t inputs, std::size_t classes) {
  Model model;
  model.name = "graph";
  model.input_cols = inputs;
  model.classes = classes;
  model.loss = make_cross_entropy();
  return model;
}

/// An input that three layers read, a branch joined by columns, and two residual connections.
Model branched(bool relu = true) {
  Model model = empty(6, 4);
  Graph graph(model);
  graph.add("stem", linear("stem", 6, 8, relu), "input");
  graph.add("left", linear("left", 8, 8, relu), "stem");
  graph.add("right", linear("right", 8, 8, relu), "stem");
  graph.add("sum", std::make_unique<Add>(relu ? Add::Activation::relu : Add::Activation::none),
            {{"b", "left"}, {"a", "stem"}});
  graph.add("both", std::make_unique<Concat>(), {{"a", "sum"}, {"b", "right"}});
  graph.add("narrow", linear("narrow", 16, 8, relu), "both");
  graph.add("twice", std::make_unique<Add>(), {{"a", "narrow"}, {"b", "narrow"}});
  graph.add("again", std::make_unique<Add>(), {{"a", "twice"}, {"b", "sum"}});
  graph.add("head", std::make_unique<Linear>("head", 8, 4, Linear::Options{}), "again");
  return model;
}

/// Compares the model's gradient with finite differences of its loss. A kink (ReLU's) may lie between the two losses of
/// a difference, for at most `kinks` of the parameters.
void compare_with_differences(const Model& model, std::size_t classes, double kinks) {
  constexpr std::size_t kBatch = 6;
  test::ModelRunner runner(model, kBatch);
  runner.randomise(classes, 3);
  runner.train(0, kBatch, 1, true);
  const std::vector<float> gradient = runner.gradient();
  double norm = 0;
  for (const float g : gradient) norm += static_cast<double>(g) * static_cast<double>(g);
  const double scale = std::sqrt(norm / static_cast<double>(gradient.size()));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float e = 1e-3F;
    const double difference = (runner.loss_at(i, e) - runner.loss_at(i, -e)) / (2 * static_cast<double>(e));
    const auto value = static_cast<double>(gradient[i]);
    if (std::abs(difference - value) > 2e-2 * std::max({scale, std::abs(value), std::abs(difference)})) ++wrong;
  }
  CHECK(static_cast<double>(wrong) <= kinks * static_cast<double>(gradient.size()));
}

}  // namespace

TEST_CASE("gradients flow through branches and residual connections") {
  compare_with_differences(branched(false), 4, 0);
  compare_with_differences(branched(), 4, 0.05);
  compare_with_differences(make_conv_net(Spec::parse("--model", "conv:2x6x6-3c3-p2-r3-5")), 5, 0.05);
}

TEST_CASE("gradients of two micro-batches add up in a graph") {
  const Model model = branched();
  test::ModelRunner runner(model, 6);
  runner.randomise(4, 5);
  runner.train(0, 6, 1, true);
  const std::vector<float> whole = runner.gradient();
  runner.train(0, 2, 1, true);
  runner.train(2, 4, 1, false);
  const std::vector<float> parts = runner.gradient();
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(parts[i] == Approx(whole[i]).epsilon(1e-4).margin(1e-5));
}

TEST_CASE("joining layers agree with finite differences, from one source and from two") {
  for (const auto activation : {Add::Activation::none, Add::Activation::relu}) {
    const Add add(activation);
    CHECK(check_gradients(add, Shape{3, 5}).relative_error < 2e-3);
    const std::vector<Shape> shapes{{3, 5}, {3, 5}};
    CHECK(check_gradients(add, shapes).relative_error < 2e-3);
  }
  const Concat concat;
  const std::vector<Shape> shapes{{3, 5}, {3, 2}};
  CHECK(check_gradients(concat, shapes).relative_error < 2e-3);
  CHECK(check_gradients(concat, Shape{3, 4}).relative_error < 2e-3);
}

TEST_CASE("a GPT's halves take another residual than x") {
  const GptShape gpt{.layers = 1, .dim = 8, .heads = 2, .context = 4, .vocab = 5};
  for (const auto& half : {make_attention_half(gpt, 0), make_mlp_half(gpt, 0)}) {
    CHECK(half->inputs() == std::vector<std::string>{"x", "residual"});
    const std::vector<Shape> shapes{{8, 8}, {8, 8}};
    CHECK(check_gradients(*half, shapes).relative_error < 2e-3);
    CHECK(check_gradients(*half, Shape{8, 8}).relative_error < 2e-3);
    const std::vector<Shape> wrong{{8, 8}, {4, 8}};
    CHECK_THROWS_WITH(half->output_of(wrong), Contains("residual of 4 x 8"));
  }
}

TEST_CASE("a GPT is a graph: each half reads the residual stream by two names") {
  const Model model = make_gpt(Spec::parse("--model", "gpt:layers=2,dim=8,heads=2,context=4,vocab=5"));
  REQUIRE(model.sources.size() == 6);
  CHECK(model.sources[1] == std::vector<std::size_t>{1, 1});
  CHECK(is_stack(model));
  CHECK_FALSE(is_stack(branched()));
}

TEST_CASE("activation checkpointing gives the same bits and needs less memory, for any cut of a graph") {
  const Model model = branched();
  const auto run = [&](std::vector<Range> recomputed, std::size_t& bytes) {
    MemoryLedger ledger;
    FlatModel flat(model, group_layers(model, "layer"));
    Binding binding(flat);
    const Layout layout = flat.layout(1);
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> gradients;
    for (std::size_t unit = 0; unit < flat.units(); ++unit) {
      parameters.emplace_back(layout.units[unit].elements);
      gradients.emplace_back(layout.units[unit].elements);
      initialise(layout.units[unit], {0, layout.units[unit].elements}, 1, parameters.back());
    }
    for (std::size_t unit = 0; unit < flat.units(); ++unit) {
      binding.bind_parameters(unit, parameters[unit]);
      binding.bind_gradients(unit, gradients[unit]);
    }
    const auto kernels = make_cpu_kernels();
    HostNetwork network(model, *kernels, ledger, {.max_batch = 5, .recomputed = recomputed, .wanted = flat.wanted()});
    bytes = ledger.peak_bytes(Category::activations);
    CHECK(bytes ==
          HostNetwork::booked_bytes(model, {.max_batch = 5, .recomputed = recomputed, .wanted = flat.wanted()}));
    network.begin(5);
    const CounterRng rng({.seed = 4});
    for (std::size_t i = 0; i < network.input().size(); ++i) network.input().data[i] = rng.normal(i);
    for (std::size_t i = 0; i < 5; ++i) network.targets()[i] = static_cast<std::int32_t>(i % 4);
    for (std::size_t i = 0; i < network.layers(); ++i) network.forward_layer(i, binding.parameters(i));
    network.loss(1);
    for (std::size_t i = network.layers(); i-- > 0;) {
      const Range again = network.to_recompute(i);
      for (std::size_t each = again.begin; each < again.end; ++each)
        network.forward_layer(each, binding.parameters(each));
      network.backward_layer(i, binding.parameters(i), binding.gradients(i));
    }
    return gradients;
  };
  std::size_t whole = 0;
  const auto expected = run({}, whole);
  for (const std::vector<Range>& cut : {std::vector<Range>{{0, 4}, {4, 7}, {7, 9}},
                                        {{0, 1}, {1, 2}, {2, 6}, {6, 9}},
                                        {{0, 9}},
                                        {{0, 3}, {3, 8}, {8, 9}}}) {
    std::size_t bytes = 0;
    CHECK(run(cut, bytes) == expected);
    CHECK(bytes <= whole);
  }
}

TEST_CASE("a branch in which nothing is trained gets no gradient") {
  const Model model = branched();
  FlatModel flat(model, group_layers(model, "layer"));
  flat.freeze(listed_units(flat, "stem,right"));
  const std::vector<Wanted> wanted = flat.wanted();
  CHECK_FALSE(wanted[1].dx);  // left reads the stem
  CHECK(wanted[1].gradients);
  CHECK_FALSE(wanted[2].dx);
  CHECK_FALSE(wanted[2].gradients);
  CHECK(wanted[3].dx);  // the sum reads left
  CHECK(flat.first_trained_layer() == 1);
}

TEST_CASE("wrong graphs are refused in one line") {
  Model model = empty(6, 4);
  Graph graph(model);
  graph.add("a", linear("a", 6, 6), "input");
  CHECK_THROWS_WITH(graph.add("b", linear("b", 6, 6), "c"), Contains("layer 'b' reads 'c'"));
  CHECK_THROWS_WITH(graph.add("a", linear("b", 6, 6), "a"), Contains("two layers have the name 'a'"));
  CHECK_THROWS_WITH(graph.add("b", std::make_unique<Add>(), {{"a", "a"}}), Contains("input 'b' of layer 'b'"));
  CHECK_THROWS_WITH(graph.add("b", std::make_unique<Add>(), {{"a", "a"}, {"c", "a"}}), Contains("has no input 'c'"));
  CHECK_THROWS_WITH(graph.add("b", std::make_unique<Add>(), {{"a", "a"}, {"a", "a"}}), Contains("connected twice"));
  graph.add("b", linear("b", 6, 4), "a");
  graph.add("c", linear("c", 6, 4), "a");
  CHECK_THROWS_WITH(FlatModel(model, group_layers(model, "layer")), Contains("no layer reads the output of layer 1"));
  model.sources[2] = {2};
  model.sources[1] = {3};
  CHECK_THROWS_WITH(check_graph(model), Contains("which runs later"));
}
