#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/factorization.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/layers/joins.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/layers/rows.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>

namespace psring::worker {
namespace {

/// Adds the rows of `features` and their factorization machine, as one block.
void add_machine(Model& model, Graph& graph, std::size_t features, std::size_t dim) {
  model.tables.push_back({.name = "rows", .width = dim + 1, .features = {0, features}});
  model.blocks.push_back({model.layers.size(), model.layers.size() + 1});
  graph.add("rows", std::make_unique<EmbeddingBag>(0, features, dim + 1), "input");
  graph.add("machine", std::make_unique<FactorizationMachine>(features, dim), "rows");
}

}  // namespace

Model make_fm(const Spec& spec) {
  spec.allow_only({"dense", "features", "dim"});
  Model model;
  model.name = spec.text();
  model.input_cols = spec.count("dense", 13, kMostDense);
  model.classes = 2;
  model.loss = make_binary_cross_entropy();
  model.metrics.push_back(make_auc());
  const auto [features, dim] = table_size_of(spec, spec.positive("features", 26), spec.positive("dim", 8));
  Graph graph(model);
  add_machine(model, graph, features, dim);
  if (model.input_cols == 0) return model;
  model.blocks.push_back({model.layers.size(), model.layers.size() + 1});
  graph.add("linear", std::make_unique<Linear>("linear", model.input_cols, 1, Linear::Options{.bias = false}), "input");
  graph.add("sum", std::make_unique<Add>(), {{"a", "machine"}, {"b", "linear"}});
  return model;
}

Model make_mf(const Spec& spec) {
  spec.allow_only({"dim"});
  Model model;
  model.name = spec.text();
  model.target_cols = 1;
  model.loss = make_squared_error();
  model.metrics.push_back(make_root_mean_square());
  const auto [features, dim] = table_size_of(spec, 2, spec.positive("dim", 16));
  Graph graph(model);
  add_machine(model, graph, features, dim);
  return model;
}

Shape FactorizationMachine::output(Shape in) const {
  if (in.cols != features_ * width_)
    fail(ErrorKind::usage, "a factorization machine of {} features of {} values reads rows of {}", features_, width_,
         in.cols);
  return {in.rows, 1};
}

double FactorizationMachine::flops(Shape in, Wanted wanted) const {
  const auto values = static_cast<double>(in.rows * features_ * width_);
  return wanted.dx ? 5 * values : 3 * values;
}

void FactorizationMachine::add_up(const float* x, std::span<float> sums) const {
  std::copy_n(x, width_, sums.data());
  for (std::size_t f = 1; f < features_; ++f)
    for (std::size_t i = 0; i < width_; ++i) sums[i] += x[f * width_ + i];
}

void FactorizationMachine::forward(const Forward& pass) const {
  const std::span<float> sums = pass.scratch.first(width_);
  const std::size_t dim = width_ - 1;
  for (std::size_t r = 0; r < pass.x.rows; ++r) {
    const float* const x = pass.x.row(r);
    add_up(x, sums);
    float squares = 0;
    for (std::size_t f = 0; f < features_; ++f) {
      const float* const v = x + f * width_ + 1;
      squares += dot_product(v, v, dim);
    }
    const float pairs = 0.5F * (dot_product(sums.data() + 1, sums.data() + 1, dim) - squares);
    pass.y.data[r] = pass.parameters[0][0] + sums[0] + pairs;
  }
}

void FactorizationMachine::backward(const Backward& pass) const {
  const std::span<float> sums = pass.scratch.first(width_);
  if (pass.wants_gradients()) {
    const Gradient& bias = pass.gradients[0];
    add_column_sums(pass.dy, bias.beta(), bias.span(), sums);
  }
  if (pass.dx.data == nullptr) return;
  for (std::size_t r = 0; r < pass.x.rows; ++r) {
    const float* const x = pass.x.row(r);
    const float dy = pass.dy.data[r];
    add_up(x, sums);
    for (std::size_t f = 0; f < features_; ++f) {
      float* const dx = pass.dx.row(r) + f * width_;
      dx[0] = dy;
      for (std::size_t i = 1; i < width_; ++i) dx[i] = dy * (sums[i] - x[f * width_ + i]);
    }
  }
}

}  // namespace psring::worker
