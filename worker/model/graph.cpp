#include <algorithm>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/graph.h>

namespace psring::worker {

Graph::Graph(Model& model, const std::string& input) : model_(model), outputs_{{input, 0}} {
  check(model.layers.empty(), "model {}: a graph of a model that has layers", model.name);
}

std::size_t Graph::output_named(const std::string& layer, const std::string& from) const {
  const auto found = outputs_.find(from);
  if (found != outputs_.end()) return found->second;
  fail(ErrorKind::usage, "model {}: layer '{}' reads '{}', which no layer before it has as its name", model_.name,
       layer, from);
}

void Graph::add(const std::string& name, std::unique_ptr<Layer> layer, const std::vector<Edge>& edges) {
  const std::vector<std::string> inputs = layer->inputs();
  constexpr std::size_t kOpen = static_cast<std::size_t>(-1);
  std::vector<std::size_t> sources(inputs.size(), kOpen);
  for (const Edge& edge : edges) {
    const auto input = std::find(inputs.begin(), inputs.end(), edge.to);
    if (input == inputs.end())
      fail(ErrorKind::usage, "model {}: layer '{}' has no input '{}'", model_.name, name, edge.to);
    std::size_t& source = sources[static_cast<std::size_t>(input - inputs.begin())];
    if (source != kOpen)
      fail(ErrorKind::usage, "model {}: input '{}' of layer '{}' is connected twice", model_.name, edge.to, name);
    source = output_named(name, edge.from);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (sources[i] == kOpen)
      fail(ErrorKind::usage, "model {}: input '{}' of layer '{}' is not connected", model_.name, inputs[i], name);
  if (!outputs_.emplace(name, model_.layers.size() + 1).second)
    fail(ErrorKind::usage, "model {}: two layers have the name '{}'", model_.name, name);
  model_.layers.push_back(std::move(layer));
  model_.sources.push_back(std::move(sources));
}

void Graph::add(const std::string& name, std::unique_ptr<Layer> layer, const std::string& from) {
  const std::string input = layer->inputs().front();
  add(name, std::move(layer), {{input, from}});
}

std::vector<std::size_t> sources_of(const Model& model, std::size_t layer) {
  if (!model.sources.empty()) return model.sources[layer];
  return std::vector<std::size_t>(model.layers[layer]->inputs().size(), layer);
}

bool is_stack(const Model& model) {
  for (std::size_t layer = 0; layer < model.sources.size(); ++layer)
    for (const std::size_t source : model.sources[layer])
      if (source != layer) return false;
  return true;
}

void check_graph(const Model& model) {
  if (model.sources.empty()) return;
  check(model.sources.size() == model.layers.size(), "model {}: sources of {} layers, of {}", model.name,
        model.sources.size(), model.layers.size());
  std::vector<bool> read(model.layers.size() + 1, false);
  read.back() = true;  // by the loss
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const std::size_t inputs = model.layers[layer]->inputs().size();
    if (model.sources[layer].size() != inputs)
      fail(ErrorKind::usage, "model {}: layer {} has {} inputs, and {} are connected", model.name, layer, inputs,
           model.sources[layer].size());
    for (const std::size_t source : model.sources[layer]) {
      if (source > layer)
        fail(ErrorKind::usage, "model {}: layer {} reads the output of layer {}, which runs later", model.name, layer,
             source - 1);
      read[source] = true;
    }
  }
  const auto unread = std::find(read.begin() + 1, read.end(), false);
  if (unread != read.end())
    fail(ErrorKind::usage, "model {}: no layer reads the output of layer {}", model.name, unread - read.begin() - 1);
}

std::vector<Shape> activation_shapes(const Model& model, std::size_t batch) {
  std::vector<Shape> shapes{{batch, model.input_cols}};
  if (model.stage_input) shapes.front() = {batch * model.stage_input->rows, model.stage_input->cols};
  std::vector<Shape> in;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    in.clear();
    for (const std::size_t source : sources_of(model, layer)) in.push_back(shapes[source]);
    shapes.push_back(model.layers[layer]->output_of(in));
  }
  return shapes;
}

}  // namespace psring::worker
