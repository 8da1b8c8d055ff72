#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/dlrm.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/layers/rows.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>

namespace psring::worker {
namespace {

std::vector<std::size_t> widths_of(const Spec& spec, const char* key, const std::string& fallback) {
  const std::string text = spec.string(key, fallback);
  std::vector<std::size_t> widths;
  for (const std::string& word : split(text, '-')) {
    widths.push_back(read_number<std::size_t>(word).value_or(0));
    if (widths.back() == 0)
      fail(ErrorKind::usage, "--model {}: {}: expected WIDTH-WIDTH-... with whole numbers > 0, got '{}'", spec.text(),
           key, text);
  }
  return widths;
}

/// Adds linear layers with ReLU; the last one has ReLU if `relu_at_end`. Returns the name of the last layer.
std::string add_linear(Model& model, Graph& graph, const std::string& name, const std::string& from, std::size_t in,
                       const std::vector<std::size_t>& widths, bool relu_at_end) {
  std::string last = from;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool relu = relu_at_end || i + 1 < widths.size();
    const std::string own = fmt::format("{}.{}", name, i);
    model.blocks.push_back({model.layers.size()});
    graph.add(own,
              std::make_unique<Linear>(
                  own, i == 0 ? in : widths[i - 1], widths[i],
                  Linear::Options{.activation = relu ? Linear::Activation::relu : Linear::Activation::none}),
              last);
    last = own;
  }
  return last;
}

}  // namespace

Model make_dlrm(const Spec& spec) {
  spec.allow_only({"dense", "features", "dim", "bottom", "top"});
  const std::size_t dense = spec.positive("dense", 13, kMostDense);
  const auto [features, dim] = table_size_of(spec, spec.positive("features", 26), spec.positive("dim", 16));
  const std::vector<std::size_t> bottom = widths_of(spec, "bottom", fmt::format("64-{}", dim));
  const std::vector<std::size_t> top = widths_of(spec, "top", "64-32-1");
  if (bottom.back() != dim || top.back() != 1)
    fail(ErrorKind::usage, "--model {}: bottom ends in a width of {}, dim={} expected; top in {}, 1 expected",
         spec.text(), bottom.back(), dim, top.back());
  Model model;
  model.name = spec.text();
  model.input_cols = dense;
  model.classes = 2;
  model.loss = make_binary_cross_entropy();
  model.metrics.push_back(make_auc());
  model.tables.push_back({.name = "rows", .width = dim, .features = {0, features}});
  Graph graph(model);
  const std::string first = add_linear(model, graph, "bottom", "input", dense, bottom, true);
  model.blocks.back().insert(model.blocks.back().end(), {model.layers.size(), model.layers.size() + 1});
  graph.add("rows", std::make_unique<EmbeddingBag>(0, features, dim), "input");
  graph.add("pairs", std::make_unique<Interaction>(features, dim), {{"dense", first}, {"rows", "rows"}});
  add_linear(model, graph, "top", "pairs", dim + features * (features + 1) / 2, top, false);
  return model;
}

Shape Interaction::output_of(std::span<const Shape> in) const {
  if (in[0].rows != in[1].rows || in[0].cols != width_ || in[1].cols != (vectors_ - 1) * width_)
    fail(ErrorKind::usage, "a layer multiplies pairs of {} x {} and {} x {}", in[0].rows, in[0].cols, in[1].rows,
         in[1].cols);
  return {in[0].rows, width_ + pairs()};
}

double Interaction::flops(Shape in, Wanted wanted) const {
  const auto products = static_cast<double>(2 * in.rows * pairs() * width_);
  return wanted.dx ? 3 * products : products;
}

void Interaction::forward(const Forward& pass) const {
  for (std::size_t r = 0; r < pass.y.rows; ++r) {
    const float* const dense = pass.input(0).row(r);
    const float* const rows = pass.input(1).row(r);
    const auto vector = [&](std::size_t i) { return i == 0 ? dense : rows + (i - 1) * width_; };
    float* y = std::copy_n(dense, width_, pass.y.row(r));
    for (std::size_t i = 1; i < vectors_; ++i)
      for (std::size_t j = 0; j < i; ++j) *y++ = dot_product(vector(i), vector(j), width_);
  }
}

void Interaction::backward(const Backward& pass) const {
  std::vector<float> sums(vectors_ * width_);
  float betas[2] = {};
  for (std::size_t input = 0; input < 2; ++input)
    if (pass.d_inputs[input].wanted()) betas[input] = pass.d_inputs[input].beta();
  for (std::size_t r = 0; r < pass.dy.rows; ++r) {
    const float* const dense = pass.input(0).row(r);
    const float* const rows = pass.input(1).row(r);
    const auto vector = [&](std::size_t i) { return i == 0 ? dense : rows + (i - 1) * width_; };
    const float* dy = pass.dy.row(r);
    std::copy_n(dy, width_, sums.data());
    std::fill(sums.begin() + static_cast<std::ptrdiff_t>(width_), sums.end(), 0.0F);
    dy += width_;
    for (std::size_t i = 1; i < vectors_; ++i)
      for (std::size_t j = 0; j < i; ++j, ++dy) {
        float* const di = sums.data() + i * width_;
        float* const dj = sums.data() + j * width_;
        for (std::size_t k = 0; k < width_; ++k) {
          di[k] += *dy * vector(j)[k];
          dj[k] += *dy * vector(i)[k];
        }
      }
    const std::size_t widths[] = {width_, (vectors_ - 1) * width_};
    const float* from = sums.data();
    for (std::size_t input = 0; input < 2; from += widths[input++]) {
      const Gradient& gradient = pass.d_inputs[input];
      if (!gradient.wanted()) continue;
      float* const to = gradient.data() + r * widths[input];
      for (std::size_t k = 0; k < widths[input]; ++k) to[k] = betas[input] == 0 ? from[k] : to[k] + from[k];
    }
  }
}

}  // namespace psring::worker
