#include <psring/common/base/text/error.h>
#include <psring/worker/model/dot_products.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/layers/rows.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>

namespace psring::worker {
namespace {

/// Adds a table for the first key field, a table for the `count` others, and the products of their vectors.
void add_products(Model& model, std::size_t count, std::size_t dim, const char* one, const char* many,
                  EmbeddingBag::Mode mode) {
  model.tables.push_back({.name = one, .width = dim, .features = {0, 1}});
  model.tables.push_back({.name = many, .width = dim, .features = {1, 1 + count}, .shares_ids = true});
  model.blocks.push_back({0, 1, 2});
  Graph graph(model);
  graph.add(one, std::make_unique<EmbeddingBag>(0, 1, dim, mode), "input");
  graph.add(many, std::make_unique<EmbeddingBag>(1, count, dim, mode), "input");
  graph.add("products", std::make_unique<DotProducts>(count, dim), {{"one", one}, {"many", many}});
}

/// into = beta * into + factor * from, or without reading `into` if beta is 0.
void add_scaled(float beta, float factor, const float* from, std::size_t n, float* into) {
  if (beta == 0)
    for (std::size_t i = 0; i < n; ++i) into[i] = factor * from[i];
  else
    for (std::size_t i = 0; i < n; ++i) into[i] += factor * from[i];
}

}  // namespace

Model make_two_tower(const Spec& spec) {
  spec.allow_only({"dim", "mode"});
  const std::string mode = spec.string("mode", "sum");
  if (mode != "sum" && mode != "mean")
    fail(ErrorKind::usage, "--model {}: expected mode=sum or mode=mean", spec.text());
  Model model;
  model.name = spec.text();
  model.classes = 2;
  model.loss = make_binary_cross_entropy();
  model.metrics.push_back(make_auc());
  const auto [count, dim] = table_size_of(spec, 1, spec.positive("dim", 16));
  add_products(model, count, dim, "first", "second",
               mode == "sum" ? EmbeddingBag::Mode::sum : EmbeddingBag::Mode::mean);
  return model;
}

Model make_skip_gram(const Spec& spec) {
  spec.allow_only({"dim", "negatives"});
  Model model;
  model.name = spec.text();
  model.loss = make_negative_sampling();
  const auto [count, dim] = table_size_of(spec, 1 + spec.positive("negatives", 5), spec.positive("dim", 64));
  add_products(model, count, dim, "words", "contexts", EmbeddingBag::Mode::sum);
  return model;
}

Shape DotProducts::output_of(std::span<const Shape> in) const {
  if (in[0].rows != in[1].rows || in[0].cols != width_ || in[1].cols != count_ * width_)
    fail(ErrorKind::usage, "a layer multiplies vectors of {} x {} and {} x {}", in[0].rows, in[0].cols, in[1].rows,
         in[1].cols);
  return {in[0].rows, count_};
}

double DotProducts::flops(Shape in, Wanted wanted) const {
  const auto products = static_cast<double>(2 * in.rows * count_ * width_);
  return wanted.dx ? 3 * products : products;
}

void DotProducts::forward(const Forward& pass) const {
  const float bias = pass.parameters[0][0];
  for (std::size_t r = 0; r < pass.y.rows; ++r) {
    const float* const one = pass.input(0).row(r);
    const float* const many = pass.input(1).row(r);
    for (std::size_t k = 0; k < count_; ++k) pass.y.row(r)[k] = bias + dot_product(one, many + k * width_, width_);
  }
}

void DotProducts::backward(const Backward& pass) const {
  if (pass.wants_gradients()) {
    const Gradient& bias = pass.gradients[0];
    float sum = 0;
    add_column_sums({pass.dy.data, pass.dy.size(), 1}, bias.beta(), bias.span(), std::span(&sum, 1));
  }
  if (const Gradient& gradient = pass.d_inputs[0]; gradient.wanted()) {
    const float beta = gradient.beta();
    for (std::size_t r = 0; r < pass.dy.rows; ++r)
      for (std::size_t k = 0; k < count_; ++k)
        add_scaled(k == 0 ? beta : 1, pass.dy.row(r)[k], pass.input(1).row(r) + k * width_, width_,
                   gradient.data() + r * width_);
  }
  if (const Gradient& gradient = pass.d_inputs[1]; gradient.wanted()) {
    const float beta = gradient.beta();
    for (std::size_t r = 0; r < pass.dy.rows; ++r)
      for (std::size_t k = 0; k < count_; ++k)
        add_scaled(beta, pass.dy.row(r)[k], pass.input(0).row(r), width_, gradient.data() + (r * count_ + k) * width_);
  }
}

}  // namespace psring::worker
