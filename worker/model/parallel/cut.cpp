#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/graph.h>
#include <psring/worker/model/parallel/cut.h>

namespace psring::worker {
namespace {

std::vector<std::size_t> layers_with_parameters(const Model& model) {
  std::vector<std::size_t> layers;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
    if (!model.layers[layer]->tensors().empty()) layers.push_back(layer);
  return layers;
}

/// The cost of the layers before each layer, in floating-point operations.
std::vector<double> cost_before(const Model& model) {
  const std::vector<Shape> shapes = activation_shapes(model, 1);
  std::vector<double> before{0};
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const Shape x = shapes[sources_of(model, layer).front()];
    before.push_back(before.back() + model.layers[layer]->flops(x, {.dx = layer > 0}));
  }
  return before;
}

std::vector<Range> ranges_from(const std::vector<std::size_t>& begins, std::size_t layers) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < begins.size(); ++i)
    ranges.push_back({begins[i], i + 1 < begins.size() ? begins[i + 1] : layers});
  return ranges;
}

[[noreturn]] void refuse_form(const std::string& text) {
  fail(ErrorKind::usage, "--stages: expected the layers of each stage, such as 0-2,3-5, got '{}'", text);
}

std::size_t parse_layer(std::string_view text, const std::string& all) {
  const auto value = read_number<std::size_t>(text);
  if (!value) refuse_form(all);
  return *value;
}

/// Parses "0-2,3": the first and the last layer of each stage.
std::vector<std::pair<std::size_t, std::size_t>> parse_stages(const std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> stages;
  for (const std::string_view part : split(text)) {
    const std::size_t dash = part.find('-');
    const std::size_t first = parse_layer(part.substr(0, dash), text);
    stages.emplace_back(first, dash == std::string_view::npos ? first : parse_layer(part.substr(dash + 1), text));
  }
  return stages;
}

}  // namespace

std::vector<std::size_t> stage_begins(const Model& model) {
  // A layer from `open` on reads an activation that is older than the output of the layer before `open`.
  std::vector<std::size_t> oldest(model.layers.size() + 1, model.layers.size());
  for (std::size_t layer = model.layers.size(); layer-- > 0;) {
    const std::vector<std::size_t> sources = sources_of(model, layer);
    oldest[layer] = std::min(oldest[layer + 1], *std::min_element(sources.begin(), sources.end()));
  }
  const std::vector<std::size_t> layers = layers_with_parameters(model);
  std::vector<std::size_t> begins{0};
  for (const std::size_t layer : layers)
    if (layer > layers.front() && oldest[layer] >= layer) begins.push_back(layer);
  return begins;
}

std::vector<Range> cut_by_cost(const Model& model, std::size_t stages) {
  const std::vector<std::size_t> begins = stage_begins(model);
  if (stages > begins.size())
    fail(ErrorKind::usage, "--pipeline {}: model {} can be cut into at most {} stages", stages, model.name,
         begins.size());
  const std::vector<double> before = cost_before(model);
  const std::size_t places = begins.size();
  const auto cost = [&](std::size_t from, std::size_t to) {
    return before[to == places ? model.layers.size() : begins[to]] - before[begins[from]];
  };
  // least[s][i]: the cost of the costliest of s stages that cover the places from i on; next: where the second begins.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(places + 1, kNever));
  std::vector<std::vector<std::size_t>> next(stages + 1, std::vector<std::size_t>(places + 1, places));
  least[0][places] = 0;
  for (std::size_t s = 1; s <= stages; ++s)
    for (std::size_t i = 0; i < places; ++i)
      for (std::size_t j = i + 1; j <= places; ++j) {
        const double most = std::max(cost(i, j), least[s - 1][j]);
        if (most >= least[s][i]) continue;
        least[s][i] = most;
        next[s][i] = j;
      }
  std::vector<std::size_t> chosen;
  for (std::size_t s = stages, i = 0; s > 0; i = next[s--][i]) chosen.push_back(begins[i]);
  return ranges_from(chosen, model.layers.size());
}

std::vector<Range> cut_as_listed(const Model& model, std::size_t stages, const std::string& text) {
  const auto listed = parse_stages(text);
  const std::vector<std::size_t> layers = layers_with_parameters(model);
  const std::vector<std::size_t> allowed = stage_begins(model);
  if (listed.size() != stages)
    fail(ErrorKind::usage, "--stages {}: lists {} stages, and --pipeline is {}", text, listed.size(), stages);
  std::vector<std::size_t> begins;
  std::size_t expected = 0;
  for (const auto& [first, last] : listed) {
    if (first != expected || last < first)
      fail(ErrorKind::usage, "--stages {}: {}-{}: expected a stage that begins with layer {}: stages leave no gaps",
           text, first, last, expected);
    if (last >= layers.size())
      fail(ErrorKind::usage, "--stages {}: layer {}: the model has {} layers with parameters, counted from 0", text,
           last, layers.size());
    begins.push_back(first == 0 ? 0 : layers[first]);
    if (std::ranges::count(allowed, begins.back()) == 0)
      fail(ErrorKind::usage,
           "--stages {}: no stage can begin with layer {}: later layers read more than the output of the layer before "
           "it",
           text, first);
    expected = last + 1;
  }
  if (expected != layers.size())
    fail(ErrorKind::usage, "--stages {}: the model has {} layers with parameters, and the stages end with layer {}",
         text, layers.size(), expected - 1);
  return ranges_from(begins, model.layers.size());
}

std::vector<Range> stages_of_job(const JobOptions& job, const Model& model) {
  if (job.pipeline == 1) return {{0, model.layers.size()}};
  return job.stages.empty() ? cut_by_cost(model, job.pipeline) : cut_as_listed(model, job.pipeline, job.stages);
}

std::map<std::string, std::vector<std::size_t>> stages_of_tensors(const Model& model, std::span<const Range> stages) {
  std::map<std::string, std::vector<std::size_t>> stages_of;
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (std::size_t layer = stages[stage].begin; layer < stages[stage].end; ++layer)
      for (const auto& list : {model.layers[layer]->tensors(), model.layers[layer]->buffers()})
        for (const TensorSpec& tensor : list)
          if (auto& of = stages_of[tensor.name]; of.empty() || of.back() != stage) of.push_back(stage);
  return stages_of;
}

Model take_stage(Model model, Range layers) {
  const bool last = layers.end == model.layers.size();
  if (layers.begin > 0) {
    const Shape input = activation_shapes(model, 1)[layers.begin];
    model.stage_input = input;
  }
  std::vector<std::unique_ptr<Layer>> own;
  std::vector<std::vector<std::size_t>> sources;
  for (std::size_t layer = layers.begin; layer < layers.end; ++layer) {
    sources.push_back(sources_of(model, layer));
    for (std::size_t& source : sources.back()) source -= layers.begin;
  }
  for (std::size_t layer = layers.begin; layer < layers.end; ++layer) own.push_back(std::move(model.layers[layer]));
  model.layers = std::move(own);
  model.sources = std::move(sources);
  model.blocks.clear();
  if (!last) {
    model.loss.reset();
    model.metrics.clear();
  }
  return model;
}

}  // namespace psring::worker
