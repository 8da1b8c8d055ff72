#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/error.h>
#include <psring/worker/model/batch_norm.h>
#include <psring/worker/model/gelu.h>
#include <psring/worker/model/linear.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/mlp.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostLayers = 65536;

std::vector<std::size_t> parse_widths(const Spec& spec) {
  std::vector<std::size_t> widths;
  std::string_view rest = spec.argument();
  for (bool more = true; more;) {
    const std::size_t dash = rest.find('-');
    const std::string_view digits = rest.substr(0, dash);
    std::size_t width = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), width);
    if (error != std::errc{} || end != digits.data() + digits.size() || width == 0)
      fail(ErrorKind::usage, "--model: expected {}:WIDTH-WIDTH-... with whole numbers > 0, got '{}' in '{}'",
           spec.name(), digits, spec.text());
    widths.push_back(width);
    more = dash != std::string_view::npos;
    if (more) rest.remove_prefix(dash + 1);
  }
  if (widths.size() < 2)
    fail(ErrorKind::usage, "--model: expected at least an input and an output width, as in {}:784-512-10, got '{}'",
         spec.name(), spec.text());
  return widths;
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

}  // namespace

Model make_mlp(const Spec& spec) {
  const std::vector<std::size_t> widths = parse_widths(spec);
  Model model = make_classifier(spec, widths);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const bool last = i + 2 == widths.size();
    const auto activation = last ? Linear::Activation::none : Linear::Activation::relu;
    model.layers.push_back(std::make_unique<Linear>(fmt::format("layers.{}", i), widths[i], widths[i + 1],
                                                    Linear::Options{.bias = true, .activation = activation}));
  }
  return model;
}

Model make_bn_mlp(const Spec& spec) {
  const std::vector<std::size_t> widths = parse_widths(spec);
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

Model make_gelu_mlp(const Spec& spec) {
  spec.allow_only({"dim", "layers"});
  const std::size_t dim = spec.positive("dim", 1024);
  const std::size_t layers = spec.positive("layers", 4);
  if (layers > kMostLayers)
    fail(ErrorKind::usage, "--model {}: {} layers; expected at most {}", spec.text(), layers, kMostLayers);
  Model model;
  model.name = spec.text();
  model.input_cols = dim;
  model.loss = make_mean_square();
  for (std::size_t i = 0; i < layers; ++i) {
    model.blocks.push_back({2 * i, 2 * i + 1});
    model.layers.push_back(
        std::make_unique<Linear>(fmt::format("layers.{}", i), dim, dim, Linear::Options{.bias = false}));
    model.layers.push_back(std::make_unique<Gelu>());
  }
  return model;
}

}  // namespace psring::worker
