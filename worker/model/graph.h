#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Builds a model whose layers read each other's outputs by name: residual connections and branches.
///
///   Graph graph(model);
///   graph.add("body", std::make_unique<Linear>(...), "input");
///   graph.add("sum", std::make_unique<Add>(), {{"a", "input"}, {"b", "body"}});
///
/// Layers run forward in the order of `add`, and the loss reads the output of the last one.
class Graph {
 public:
  /// Connects a layer's input `to` with the output of the layer `from`.
  struct Edge {
    std::string to;
    std::string from;
  };

  /// `input`: the name of the model's input. REQUIRES: the model has no layers, and outlives the graph.
  explicit Graph(Model& model, const std::string& input = "input");

  /// Appends a layer. Throws usage, naming the model and the layer, if the name is taken, an edge names an unknown
  /// output or input, or an input is not connected exactly once.
  void add(const std::string& name, std::unique_ptr<Layer> layer, const std::vector<Edge>& edges);
  /// The same for a layer with one input.
  void add(const std::string& name, std::unique_ptr<Layer> layer, const std::string& from);

 private:
  std::size_t output_named(const std::string& layer, const std::string& from) const;

  Model& model_;
  std::map<std::string, std::size_t> outputs_;  ///< activations by name
};

/// Returns the activations that a layer reads, one for each of its inputs.
std::vector<std::size_t> sources_of(const Model& model, std::size_t layer);

/// Returns whether every layer reads only the output of the layer before it.
bool is_stack(const Model& model);

/// Throws usage if a layer reads an output that comes later, or if an output is read by no layer.
void check_graph(const Model& model);

/// Returns the shapes of all activations for `batch` samples: of the model's input, and of each layer's output. Throws
/// usage if a layer does not accept its inputs' shapes.
std::vector<Shape> activation_shapes(const Model& model, std::size_t batch);

}  // namespace psring::worker
