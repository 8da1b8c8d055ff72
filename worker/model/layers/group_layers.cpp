#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/flat_parameters.h>

namespace psring::worker {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;

constexpr const char* kExpected = "expected layer, block, root, a number of layers, or sets of layers such as 0+3,1+2";

std::size_t number(std::string_view text, std::string_view units) {
  const auto value = read_number<std::size_t>(text);
  if (!value) fail(ErrorKind::usage, "--units: {}, got '{}'", kExpected, units);
  return *value;
}

/// `layers`: the layers that have parameters.
Groups runs_of(const std::vector<std::size_t>& layers, std::size_t count, std::string_view units) {
  if (count == 0) fail(ErrorKind::usage, "--units: {}, got '{}'", kExpected, units);
  Groups groups;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i % count == 0) groups.emplace_back();
    groups.back().push_back(layers[i]);
  }
  return groups;
}

Groups sets_of(const std::vector<std::size_t>& layers, std::string_view units) {
  Groups groups;
  std::vector<bool> named(layers.size(), false);
  for (const std::string_view set : split(units)) {
    groups.emplace_back();
    for (const std::string_view member : split(set, '+')) {
      const std::size_t layer = number(member, units);
      if (layer >= layers.size())
        fail(ErrorKind::usage, "--units {}: layer {}: the model has {} layers with parameters, counted from 0", units,
             layer, layers.size());
      if (named[layer]) fail(ErrorKind::usage, "--units {}: layer {} is listed twice", units, layer);
      named[layer] = true;
      groups.back().push_back(layers[layer]);
    }
  }
  return groups;
}

Groups named_groups(const Model& model, std::string_view units) {
  if (units == "layer") return {};
  if (units == "block") return model.blocks;
  std::vector<std::size_t> layers;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
    if (!model.layers[layer]->tensors().empty()) layers.push_back(layer);
  if (units == "root") return {layers};
  return units.find_first_of("+,") == std::string_view::npos ? runs_of(layers, number(units, units), units)
                                                             : sets_of(layers, units);
}

}  // namespace

Groups group_layers(const Model& model, std::string_view units) {
  Groups groups = named_groups(model, units);
  std::vector<bool> grouped(model.layers.size(), false);
  for (const auto& group : groups)
    for (const std::size_t layer : group) grouped.at(layer) = true;
  for (std::size_t layer = 0; layer < grouped.size(); ++layer)
    if (!grouped[layer]) groups.push_back({layer});
  return groups;
}

}  // namespace psring::worker
