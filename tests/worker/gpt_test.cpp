#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/device/kernels.h>
#include <psring/tests/support/run_layers.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/host_network.h>
#include <psring/worker/model/layers/attention.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/vector_math.h>

using namespace psring;
using namespace psring::worker;
using psring::test::dot;
using psring::test::LayerStack;
using psring::test::normal;
using psring::test::relative_error;

namespace {

Model gpt(const std::string& text) { return make_gpt(Spec::parse("--model", text)); }

std::vector<const Layer*> all_layers(const Model& model) {
  std::vector<const Layer*> layers;
  for (const auto& layer : model.layers) layers.push_back(layer.get());
  return layers;
}

void set_tokens(LayerStack& stack, std::size_t vocab, std::uint64_t seed) {
  const CounterRng rng({.seed = seed});
  std::vector<float>& input = stack.input();
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(rng.bits(i) % vocab);
}

/// Directional derivatives of sum(w * y) by each parameter, against central differences in f32: the
/// step is large, and Richardson's extrapolation takes the cubic term away.
void check_directions(LayerStack& stack) {
  const std::vector<float> w = normal(stack.output_shape().elements(), 99);
  stack.forward();
  stack.backward(w);
  const auto slope = [&](std::vector<float>& at, const std::vector<float>& direction, float h) {
    const std::vector<float> start = at;
    const auto value = [&](float step) {
      for (std::size_t i = 0; i < at.size(); ++i) at[i] = start[i] + step * direction[i];
      const double result = dot(w, stack.forward());
      at = start;
      return result;
    };
    const double wide = (value(h) - value(-h)) / (2.0 * static_cast<double>(h));
    const double narrow = (value(h / 2) - value(-h / 2)) / static_cast<double>(h);
    return (4 * narrow - wide) / 3;
  };
  const auto compare = [&](const std::string& name, std::vector<float>& at, const std::vector<float>& gradient) {
    std::vector<float> direction = normal(at.size(), 7);
    const double norm = std::sqrt(dot(gradient, gradient));
    REQUIRE(norm > 0);
    // Half along the gradient, half at random: neither a wrong size nor a wrong place can hide.
    const auto count = static_cast<double>(at.size());
    for (std::size_t i = 0; i < at.size(); ++i)
      direction[i] = static_cast<float>((static_cast<double>(direction[i]) / std::sqrt(count)) +
                                        static_cast<double>(gradient[i]) / norm);
    INFO(name);
    const double expected = slope(at, direction, 0.05F);
    CHECK(dot(gradient, direction) == Approx(expected).epsilon(2e-3).margin(1e-3 * norm));
  };
  for (test::Parameter& parameter : stack.parameters()) compare(parameter.name, parameter.value, parameter.gradient);
}

}  // namespace

TEST_CASE("exponential is within 1e-7 of the true one, and bounded outside its range") {
  for (int i = -86999; i < 87000; i += 7) {
    const float z = static_cast<float>(i) * 1e-3F;
    const double exact = std::exp(static_cast<double>(z));
    REQUIRE(std::abs(static_cast<double>(exponential(z)) - exact) < 1e-7 * exact);
  }
  CHECK(exponential(-1000.0F) == exponential(-87.0F));
  CHECK(std::isfinite(exponential(1000.0F)));
  CHECK(std::isnan(exponential(std::nanf(""))));
}

TEST_CASE("sums, dot products and maxima do not depend on the address") {
  for (const std::size_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 385}) {
    const std::vector<float> x = normal(n, n);
    double exact = 0;
    for (const float v : x) exact += static_cast<double>(v);
    CHECK(static_cast<double>(sum(x.data(), n)) == Approx(exact).margin(1e-4));
    CHECK(static_cast<double>(worker::dot(x.data(), x.data(), n)) == Approx(dot(x, x)).epsilon(1e-5));
    CHECK(largest(x.data(), n) == *std::max_element(x.begin(), x.end()));
    for (std::size_t shift = 1; shift < 9; ++shift) {
      std::vector<float> moved(n + shift);
      std::copy(x.begin(), x.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
      REQUIRE(sum(moved.data() + shift, n) == sum(x.data(), n));
    }
  }
}

TEST_CASE("layer norm keeps its digits under a large mean") {
  const std::size_t n = 37;
  std::vector<float> x = normal(2 * n, 5);
  for (float& v : x) v += 100.0F;
  const std::vector<float> weight = normal(n, 6);
  const std::vector<float> bias = normal(n, 7);
  std::vector<float> y(2 * n);
  std::vector<float> saved(layer_norm_saved(2));
  layer_norm({x.data(), 2, n}, weight, bias, saved, {y.data(), 2, n});
  std::vector<double> expected(2 * n);
  for (std::size_t r = 0; r < 2; ++r) {
    double mean = 0;
    double variance = 0;
    for (std::size_t j = 0; j < n; ++j) mean += static_cast<double>(x[r * n + j]) / n;
    for (std::size_t j = 0; j < n; ++j) variance += std::pow(static_cast<double>(x[r * n + j]) - mean, 2) / n;
    for (std::size_t j = 0; j < n; ++j)
      expected[r * n + j] =
          (static_cast<double>(x[r * n + j]) - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(weight[j]) +
          static_cast<double>(bias[j]);
  }
  CHECK(relative_error(y, expected) < 1e-5);
  std::vector<float> again(2 * n);
  layer_norm_again({x.data(), 2, n}, weight, bias, saved, {again.data(), 2, n});
  CHECK(again == y);
}

namespace {

/// Attention and its gradient of sum(d_out * out) as the formulas say, one row at a time, in f64.
struct NaiveAttention {
  std::vector<double> out, d_qkv;
  NaiveAttention(const Attention& a, const std::vector<float>& qkv, const std::vector<float>& d_out)
      : out(a.rows() * a.dim()), d_qkv(qkv.size()) {
    for (std::size_t s = 0; s < a.batch; ++s)
      for (std::size_t h = 0; h < a.heads; ++h)
        for (std::size_t i = 0; i < a.context; ++i) row(a, qkv, d_out, s * a.context, h * a.head_dim, i);
  }
  void row(const Attention& a, const std::vector<float>& qkv, const std::vector<float>& d_out, std::size_t first,
           std::size_t column, std::size_t i) {
    const std::size_t dim = a.dim();
    const auto at = [&](std::size_t part, std::size_t r, std::size_t c) {
      return (first + r) * 3 * dim + part * dim + column + c;
    };
    const auto q = [&](std::size_t part, std::size_t r, std::size_t c) {
      return static_cast<double>(qkv[at(part, r, c)]);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    std::vector<double> p(i + 1), dp(i + 1);
    double total = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t c = 0; c < a.head_dim; ++c) p[j] += scale * q(0, i, c) * q(1, j, c);
      total += p[j] = std::exp(p[j]);
    }
    double delta = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      p[j] /= total;
      for (std::size_t c = 0; c < a.head_dim; ++c) {
        const std::size_t o = (first + i) * dim + column + c;
        out[o] += p[j] * q(2, j, c);
        dp[j] += static_cast<double>(d_out[o]) * q(2, j, c);
        d_qkv[at(2, j, c)] += p[j] * static_cast<double>(d_out[o]);
      }
      delta += p[j] * dp[j];
    }
    for (std::size_t j = 0; j <= i; ++j)
      for (std::size_t c = 0; c < a.head_dim; ++c) {
        const double ds = scale * p[j] * (dp[j] - delta);
        d_qkv[at(0, i, c)] += ds * q(1, j, c);
        d_qkv[at(1, j, c)] += ds * q(0, i, c);
      }
  }
};

void check_attention(const Attention& shape, float size) {
  INFO(shape.batch << " x " << shape.context << ", " << shape.heads << " heads of " << shape.head_dim);
  std::vector<float> qkv = normal(3 * shape.rows() * shape.dim(), 1);
  for (float& v : qkv) v *= size;
  const std::vector<float> d_out = normal(shape.rows() * shape.dim(), 2);
  const float unset = std::nanf("");
  std::vector<float> out(d_out.size(), unset), d_qkv(qkv.size(), unset), log_sums(shape.saved_floats(), unset);
  std::vector<float> scratch(shape.scratch_floats(), unset);
  const auto kernels = make_cpu_kernels();
  attention_forward(*kernels, shape, qkv, out, log_sums, scratch);
  std::fill(scratch.begin(), scratch.end(), unset);
  attention_backward(*kernels, shape, qkv, out, log_sums, d_out, d_qkv, scratch);
  const NaiveAttention naive(shape, qkv, d_out);
  CHECK(relative_error(out, naive.out) < 2e-6);
  CHECK(relative_error(d_qkv, naive.d_qkv) < 1e-5);
}

}  // namespace

TEST_CASE("attention in blocks equals the plain formulas") {
  for (const std::size_t context : {1, 2, 31, 63, 64, 65, 100, 128, 130, 200})
    for (const std::size_t heads : {1, 3})
      check_attention({.batch = 2, .context = context, .heads = heads, .head_dim = 16}, 1);
  for (const std::size_t heads : {1, 2, 3, 4})
    for (const std::size_t head_dim : {1, 5, 32, 64}) check_attention({1, 70, heads, head_dim}, 1);
  check_attention({1, 90, 2, 8}, 8);  // scores of some hundreds
}

TEST_CASE("each layer's gradients match finite differences") {
  const GptShape shape{.layers = 2, .dim = 12, .heads = 3, .context = 5, .vocab = 11};
  CHECK_NOTHROW(check_gradients(*make_attention_half(shape, 0), {10, 12}));
  CHECK_NOTHROW(check_gradients(*make_mlp_half(shape, 0), {10, 12}));
  CHECK_NOTHROW(check_gradients(*make_head(shape), {10, 12}));
  CHECK_NOTHROW(
      check_gradients(*make_embedding(shape), {2, 5}, {.input = false, .x = {3, 0, 1, 10, 3, 2, 2, 2, 2, 9}}));
}

TEST_CASE("a whole gpt's gradients match finite differences") {
  const Model model = gpt("gpt:layers=2,dim=12,heads=3,context=5,vocab=11");
  LayerStack stack(all_layers(model), {2, 5}, 1);
  set_tokens(stack, 11, 1);
  check_directions(stack);
}

TEST_CASE("the gradients of the tied embedding add up, and micro-batches do") {
  const GptShape shape{.layers = 1, .dim = 8, .heads = 1, .context = 6, .vocab = 9};
  const auto embedding = make_embedding(shape);
  const auto head = make_head(shape);
  LayerStack both({embedding.get(), head.get()}, {3, 6}, 1);
  set_tokens(both, 9, 2);
  const std::vector<float> w = normal(both.output_shape().elements(), 3);
  const std::vector<float> hidden = [&] {
    LayerStack alone({embedding.get()}, {3, 6}, 1);
    alone.parameter("wte.weight").value = both.parameter("wte.weight").value;
    alone.parameter("wpe.weight").value = both.parameter("wpe.weight").value;
    alone.input() = both.input();
    return alone.forward();
  }();
  LayerStack top({head.get()}, {18, 8}, 1);
  for (test::Parameter& parameter : top.parameters()) parameter.value = both.parameter(parameter.name).value;
  top.input() = hidden;
  top.forward();
  const std::vector<float> d_hidden = top.backward(w);
  std::vector<double> expected(9 * 8);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<double>(top.parameter("wte.weight").gradient[i]);
  for (std::size_t r = 0; r < 18; ++r)
    for (std::size_t j = 0; j < 8; ++j)
      expected[static_cast<std::size_t>(both.input()[r]) * 8 + j] += static_cast<double>(d_hidden[r * 8 + j]);

  both.forward();
  both.backward(w);
  CHECK(relative_error(both.parameter("wte.weight").gradient, expected) < 1e-6);
  const std::vector<test::Parameter> once = both.parameters();
  both.backward(w, true);
  for (std::size_t p = 0; p < once.size(); ++p) {
    std::vector<double> twice(once[p].gradient.size());
    for (std::size_t i = 0; i < twice.size(); ++i) twice[i] = 2 * static_cast<double>(once[p].gradient[i]);
    INFO(once[p].name);
    CHECK(relative_error(both.parameters()[p].gradient, twice) < 1e-6);
  }
}

TEST_CASE("a later token changes no earlier output") {
  const Model model = gpt("gpt:layers=2,dim=16,heads=2,context=70,vocab=13");
  LayerStack stack(all_layers(model), {2, 70}, 1);
  set_tokens(stack, 13, 1);
  const std::vector<float> before = stack.forward();
  for (const std::size_t position : {1, 40, 64, 69}) {
    float& token = stack.input()[position];
    const float old = token;
    token = old == 0 ? 1.0F : 0.0F;
    const std::vector<float> after = stack.forward();
    token = old;
    const auto at = static_cast<std::ptrdiff_t>(position * 13);
    CHECK(std::equal(before.begin(), before.begin() + at, after.begin()));
    CHECK_FALSE(std::equal(before.begin() + at, before.begin() + at + 13, after.begin() + at));
    CHECK(std::equal(before.begin() + 70 * 13, before.end(), after.begin() + 70 * 13));  // nor the other sample's
  }
}

TEST_CASE("the same batch gives the same bits") {
  const Model model = gpt("gpt:layers=1,dim=24,heads=2,context=66,vocab=13");
  LayerStack stack(all_layers(model), {2, 66}, 1);
  set_tokens(stack, 13, 1);
  const std::vector<float> first = stack.forward();
  const std::vector<float> w = normal(first.size(), 4);
  stack.backward(w);
  const std::vector<test::Parameter> gradients = stack.parameters();
  CHECK(stack.forward() == first);
  stack.backward(w);
  for (std::size_t p = 0; p < gradients.size(); ++p) CHECK(stack.parameters()[p].gradient == gradients[p].gradient);
}

TEST_CASE("names and shapes are those of the published GPT-2") {
  const Model model = gpt("gpt:layers=12,dim=768,heads=12,context=1024,vocab=50257");
  std::map<std::string, std::vector<std::size_t>> expected{
      {"wte.weight", {50257, 768}}, {"wpe.weight", {1024, 768}}, {"ln_f.weight", {768}}, {"ln_f.bias", {768}}};
  for (int i = 0; i < 12; ++i) {
    const std::string h = "h." + std::to_string(i) + ".";
    expected[h + "ln_1.weight"] = expected[h + "ln_1.bias"] = {768};
    expected[h + "attn.c_attn.weight"] = {768, 2304};
    expected[h + "attn.c_attn.bias"] = {2304};
    expected[h + "attn.c_proj.weight"] = {768, 768};
    expected[h + "attn.c_proj.bias"] = {768};
    expected[h + "ln_2.weight"] = expected[h + "ln_2.bias"] = {768};
    expected[h + "mlp.c_fc.weight"] = {768, 3072};
    expected[h + "mlp.c_fc.bias"] = {3072};
    expected[h + "mlp.c_proj.weight"] = {3072, 768};
    expected[h + "mlp.c_proj.bias"] = {768};
  }
  std::map<std::string, std::vector<std::size_t>> found;
  std::size_t elements = 0;
  for (const auto& layer : model.layers)
    for (const TensorSpec& tensor : layer->tensors())
      if (found.emplace(tensor.name, tensor.shape).second) elements += tensor.elements();
  CHECK(found == expected);
  CHECK(elements == 124439808);  // the 124M of GPT-2 small
  CHECK(model.layers.size() == 26);
  CHECK(model.blocks.size() == 14);
  CHECK(model.blocks[1] == std::vector<std::size_t>{1, 2});
  CHECK(model.rows_per_sample == 1024);
}

TEST_CASE("initial values are GPT-2's") {
  const Model model = gpt("gpt:layers=8,dim=16,heads=2,context=4,vocab=8");
  for (const auto& layer : model.layers)
    for (const TensorSpec& tensor : layer->tensors()) {
      INFO(tensor.name);
      const bool norm = tensor.name.find("ln_") != std::string::npos;
      const bool bias = tensor.name.ends_with(".bias");
      const bool residual = tensor.name.find("c_proj.weight") != std::string::npos;
      CHECK((tensor.init.kind == Init::Kind::constant) == (norm || bias));
      CHECK(tensor.init.a == Approx(bias ? 0.0 : norm ? 1.0 : residual ? 0.02 / 4 : 0.02));
    }
}

TEST_CASE("bad models and bad tokens are refused with a line that helps") {
  const auto kind = [](auto&& action) {
    try {
      action();
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Catch::Contains("--model") || Catch::Contains("token"));
      return error.kind();
    }
    FAIL("no error");
    return ErrorKind::bug;
  };
  const auto make = [&](const std::string& spec) { return kind([&] { make_gpt(Spec::parse("--model", spec)); }); };
  CHECK(make("gpt:dim=10,heads=3,context=8") == ErrorKind::usage);
  CHECK(make("gpt:context=8,depth=2") == ErrorKind::usage);
  CHECK(make("gpt:layers=0,context=8") == ErrorKind::usage);
  CHECK(make("gpt:context=8,vocab=16777217") == ErrorKind::usage);

  const Model model = gpt("gpt:layers=1,dim=4,heads=1,context=8,vocab=10");
  CHECK(kind([&] { model.layers[0]->output({2, 7}); }) == ErrorKind::usage);
  for (const float bad : {10.0F, -1.0F, 1.5F, std::nanf("")}) {
    LayerStack stack(all_layers(model), {2, 8}, 1);
    set_tokens(stack, 10, 1);
    stack.input()[11] = bad;
    CHECK(kind([&] { stack.forward(); }) == ErrorKind::data);
    CHECK_THROWS_WITH(stack.forward(), Catch::Contains("sample 1") && Catch::Contains("position 3"));
  }
}

namespace {

/// How often each product stands in the list, strides spelled out.
std::map<std::vector<std::size_t>, int> operations(const std::vector<Gemm>& list) {
  std::map<std::vector<std::size_t>, int> count;
  for (const Gemm& g : list) ++count[{g.m, g.n, g.k, g.transpose_a, g.transpose_b, g.lda, g.ldb, g.ldc}];
  return count;
}

}  // namespace

TEST_CASE("needed operations are counted, and the products stated are those called") {
  const GptShape shape{.layers = 6, .dim = 384, .heads = 6, .context = 256, .vocab = 256};
  const double rows = 2048;
  CHECK(make_mlp_half(shape, 0)->flops({2048, 384}, {}) == Approx(3 * 2 * rows * 384 * 1536 * 2));
  CHECK(make_head(shape)->flops({2048, 384}, {}) == Approx(3 * 2 * rows * 384 * 256));
  CHECK(make_attention_half(shape, 0)->flops({2048, 384}, {}) ==
        Approx(3 * 2 * rows * 384 * (1152 + 384) + 6 * 2.0 * 8 * 384 * 256 * 257 / 2));

  const Model model = gpt("gpt:layers=2,dim=24,heads=3,context=70,vocab=13");
  LayerStack stack(all_layers(model), {2, 70}, 1);  // a recording of what is called against what is stated
  set_tokens(stack, 13, 1);
  const std::vector<float> w = normal(stack.output_shape().elements(), 2);
  stack.forward();
  stack.backward(w);
  std::vector<Gemm> stated;
  Shape in{2, 70};
  for (const auto& layer : model.layers) {
    layer->gemms(in, {}, stated);
    in = layer->output(in);
  }
  CHECK(operations(stated) == operations(stack.products()));
}

TEST_CASE("what a block keeps for backward is in the activations' type, but for statistics") {
  constexpr std::size_t batch = 4;
  const auto kept = [&](std::size_t layers, DType type) {
    const Model model = gpt("gpt:layers=" + std::to_string(layers) + ",dim=32,heads=4,context=16,vocab=64");
    const auto kernels = make_cpu_kernels();
    MemoryLedger ledger;
    const HostNetwork network(model, *kernels, ledger, {.max_batch = batch, .types = {type, type, type}});
    return ledger.peak_bytes(Category::activations);
  };
  const auto [type, bytes] =
      GENERATE(table<DType, std::uint64_t>({{DType::f32, 4}, {DType::bf16, 2}, {DType::f16, 2}}));
  constexpr std::uint64_t rows = batch * 16;
  // Two halves' inputs; queries, keys, values and the heads' output, what goes into the GELU; two norms, and a log-sum
  // a row and head.
  CHECK(kept(3, type) - kept(2, type) == (2 + 4 + 4) * rows * 32 * bytes + (2 * 2 + 4) * rows * 4);
}

TEST_CASE("what is not wanted is neither counted nor called") {
  const GptShape shape{.layers = 2, .dim = 24, .heads = 3, .context = 70, .vocab = 13};
  const std::unique_ptr<Layer> list[] = {make_attention_half(shape, 0), make_mlp_half(shape, 0), make_head(shape)};
  for (const auto& layer : list) {
    const double all = layer->flops({140, 24}, {});
    const double backward = layer->flops({140, 24}, {.gradients = false});
    const double forward = layer->flops({140, 24}, {.dx = false, .gradients = false});
    CHECK(forward < backward);
    CHECK(backward < all);
    CHECK(all == 3 * forward);
    CHECK(layer->flops({140, 24}, {.dx = false}) == all);  // the norm's gradients need all but the last step
    std::vector<Gemm> products;
    layer->gemms({140, 24}, {.dx = false, .gradients = false}, products);
    const std::size_t of_forward = products.size();
    products.clear();
    layer->gemms({140, 24}, {.gradients = false}, products);
    for (const Gemm& each : products) CHECK_FALSE((each.transpose_a && each.k == 140));  // x^T dy
    CHECK(products.size() > of_forward);
  }
}
