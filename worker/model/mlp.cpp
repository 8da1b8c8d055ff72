#include <string_view>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/layers/batch_norm.h>
#include <psring/worker/model/layers/dropout.h>
#include <psring/worker/model/layers/gelu.h>
#include <psring/worker/model/layers/linear.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/mlp.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostLayers = 65536;

/// The widths of a model's linear layers, and the dropout that follows each width; 0: none.
struct Widths {
  std::vector<std::size_t> widths;
  std::vector<double> dropout;
};

std::size_t parse_width(const Spec& spec, std::string_view text) {
  const std::size_t width = read_number<std::size_t>(text).value_or(0);
  if (width == 0)
    fail(ErrorKind::usage, "--model: expected {}:WIDTH-WIDTH-... with whole numbers > 0, got '{}' in '{}'", spec.name(),
         text, spec.text());
  return width;
}

/// `dropout`: whether the model takes words such as d0.2.
Widths parse_widths(const Spec& spec, bool dropout) {
  Widths found;
  for (const std::string& word : split(spec.argument(), '-')) {
    if (dropout && word.starts_with('d') && !found.widths.empty() && found.dropout.back() == 0)
      found.dropout.back() = parse_dropout(word.substr(1), spec.text());
    else {
      found.widths.push_back(parse_width(spec, word));
      found.dropout.push_back(0);
    }
  }
  if (found.widths.size() < 2)
    fail(ErrorKind::usage, "--model: expected at least an input and an output width, as in {}:784-512-10, got '{}'",
         spec.name(), spec.text());
  if (found.dropout.back() > 0) fail(ErrorKind::usage, "--model {}: dropout after the last layer", spec.text());
  return found;
}

/// Makes a classifier without layers.
Model make_classifier(const Spec& spec, const std::vector<std::size_t>& widths) {
  Model model;
  model.name = spec.text();
  model.input_cols = widths.front();
  model.classes = widths.back();
  model.loss = make_cross_entropy();
  return model;
}

/// Returns the cut of layer i of `layers` linear layers: pairs of layers cut the width between them. A layer without a
/// partner is the last one, and whole.
Linear::Cut cut_of(std::size_t i, std::size_t layers) {
  if (i % 2 == 1) return Linear::Cut::inputs;
  return i + 1 < layers ? Linear::Cut::outputs : Linear::Cut::none;
}

void check_width(const Spec& spec, const TensorPart& part, std::size_t width) {
  if (width < part.size())
    fail(ErrorKind::usage, "--tensor {}: --model {}: a width of {} has no column for each part", part.size(),
         spec.text(), width);
}

/// Adds linear layers with ReLU between them, and dropout. A block is a linear layer and the dropout after it.
void add_linear_layers(Model& model, const Spec& spec, const Widths& of, const TensorPart& part) {
  const std::size_t layers = of.widths.size() - 1;
  const auto drop = [&](std::size_t width) {
    if (of.dropout[width] == 0) return;
    model.blocks.back().push_back(model.layers.size());
    const bool cut = width > 0 && cut_of(width - 1, layers) == Linear::Cut::outputs;
    const Range columns = cut ? part.of(of.widths[width]) : Range{0, of.widths[width]};
    model.layers.push_back(std::make_unique<Dropout>(of.dropout[width], Dropout::Columns{columns, of.widths[width]}));
  };
  model.blocks.emplace_back();
  drop(0);
  for (std::size_t i = 0; i < layers; ++i) {
    if (i > 0) model.blocks.emplace_back();
    const bool last = i + 1 == layers;
    if (cut_of(i, layers) == Linear::Cut::outputs) check_width(spec, part, of.widths[i + 1]);
    const auto activation = last ? Linear::Activation::none : Linear::Activation::relu;
    model.blocks.back().push_back(model.layers.size());
    model.layers.push_back(std::make_unique<Linear>(
        fmt::format("layers.{}", i), of.widths[i], of.widths[i + 1],
        Linear::Options{.bias = true, .activation = activation, .cut = cut_of(i, layers), .part = part}));
    drop(i + 1);
  }
}

}  // namespace

Model make_mlp(const Spec& spec) { return make_mlp(spec, {}); }

Model make_mlp(const Spec& spec, const TensorPart& part) {
  const Widths widths = parse_widths(spec, true);
  Model model = make_classifier(spec, widths.widths);
  add_linear_layers(model, spec, widths, part);
  return model;
}

Model make_mse_mlp(const Spec& spec) { return make_mse_mlp(spec, {}); }

Model make_mse_mlp(const Spec& spec, const TensorPart& part) {
  const Widths widths = parse_widths(spec, true);
  Model model;
  model.name = spec.text();
  model.input_cols = widths.widths.front();
  model.target_cols = widths.widths.back();
  model.loss = make_squared_error();
  add_linear_layers(model, spec, widths, part);
  return model;
}

Model make_bn_mlp(const Spec& spec) {
  const std::vector<std::size_t> widths = parse_widths(spec, false).widths;
  Model model = make_classifier(spec, widths);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    model.blocks.push_back({model.layers.size()});
    model.layers.push_back(
        std::make_unique<Linear>(fmt::format("layers.{}", i), widths[i], widths[i + 1], Linear::Options{.bias = last}));
    if (last) break;
    model.blocks.back().push_back(model.layers.size());
    model.layers.push_back(
        std::make_unique<BatchNorm>(fmt::format("norms.{}", i), widths[i + 1], BatchNorm::Activation::relu));
  }
  return model;
}

Model make_gelu_mlp(const Spec& spec) { return make_gelu_mlp(spec, {}); }

Model make_gelu_mlp(const Spec& spec, const TensorPart& part) {
  spec.allow_only({"dim", "layers"});
  const std::size_t dim = spec.positive("dim", 1024);
  const std::size_t layers = spec.positive("layers", 4);
  if (layers > kMostLayers)
    fail(ErrorKind::usage, "--model {}: {} layers; expected at most {}", spec.text(), layers, kMostLayers);
  check_width(spec, part, dim);
  Model model;
  model.name = spec.text();
  model.input_cols = dim;
  model.loss = make_mean_square();
  for (std::size_t i = 0; i < layers; ++i) {
    model.blocks.push_back({2 * i, 2 * i + 1});
    model.layers.push_back(std::make_unique<Linear>(
        fmt::format("layers.{}", i), dim, dim, Linear::Options{.bias = false, .cut = cut_of(i, layers), .part = part}));
    model.layers.push_back(std::make_unique<Gelu>());
  }
  return model;
}

}  // namespace psring::worker
