#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/graph.h>

namespace psring::worker {
namespace {

/// Disjoint sets of 0 .. n - 1; the smallest member represents a set.
class Sets {
 public:
  explicit Sets(std::size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), std::size_t{0}); }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void unite(std::size_t a, std::size_t b) {
    const auto [least, other] = std::minmax({find(a), find(b)});
    parent_[other] = least;
  }

 private:
  std::vector<std::size_t> parent_;
};

std::vector<std::size_t> group_of_each_layer(const Model& model, const std::vector<std::vector<std::size_t>>& groups) {
  std::vector<std::size_t> group_of(model.layers.size(), kNoUnit);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t layer : groups[g]) {
      check(layer < group_of.size() && group_of[layer] == kNoUnit, "layer {} is in two groups, or not in model {}",
            layer, model.name);
      group_of[layer] = g;
    }
  for (std::size_t layer = 0; layer < group_of.size(); ++layer)
    check(group_of[layer] != kNoUnit, "layer {} of model {} is in no group", layer, model.name);
  return group_of;
}

/// The distinct tensors of a model, in the order in which its layers name them.
struct Tensors {
  struct Tensor {
    TensorSpec spec;
    std::size_t group;  ///< group of the first layer that names the tensor
  };
  std::vector<Tensor> all;                       ///< by id
  std::vector<std::vector<std::size_t>> ids_of;  ///< by layer
  Sets sets;                                     ///< sets of groups that share a tensor
  std::vector<bool> shares;                      ///< by group: whether it shares a tensor with another

  Tensors(const Model& model, const std::vector<std::size_t>& group_of, std::size_t groups)
      : ids_of(model.layers.size()), sets(groups), shares(groups, false) {
    std::map<std::string, std::size_t> ids;
    for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
      for (TensorSpec& spec : model.layers[layer]->tensors()) {
        const auto [known, is_new] = ids.emplace(spec.name, all.size());
        ids_of[layer].push_back(known->second);
        if (is_new)
          all.push_back({std::move(spec), group_of[layer]});
        else
          share(all[known->second], spec, group_of[layer], model.name);
      }
  }

 private:
  void share(const Tensor& first, const TensorSpec& again, std::size_t group, const std::string& model) {
    if (first.spec.shape != again.shape)
      fail(ErrorKind::usage, "model {}: two layers share the tensor {}, and give it different shapes", model,
           again.name);
    if (first.group == group) return;
    shares[first.group] = shares[group] = true;
    sets.unite(first.group, group);
  }
};

}  // namespace

std::string common_name(const std::vector<TensorLayout>& tensors) {
  std::string common = tensors.front().spec.name;
  if (common.rfind('.') != std::string::npos) common.resize(common.rfind('.'));
  for (const TensorLayout& tensor : tensors)
    while (!common.empty() && !(tensor.spec.name + ".").starts_with(common + "."))
      common.resize(common.find('.') == std::string::npos ? 0 : common.rfind('.'));
  return common;
}

FlatModel::FlatModel(const Model& model, const std::vector<std::vector<std::size_t>>& groups)
    : layers_(model.layers.size()) {
  check_graph(model);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    sources_.push_back(sources_of(model, layer));
    layers_[layer].table = model.layers[layer]->table();
  }
  const std::vector<std::size_t> group_of = group_of_each_layer(model, groups);
  Tensors tensors(model, group_of, groups.size());

  std::map<std::size_t, std::size_t> unit_of_set;
  std::vector<bool> is_root;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    if (tensors.ids_of[layer].empty()) continue;
    const auto [known, is_new] = unit_of_set.emplace(tensors.sets.find(group_of[layer]), unit_layers_.size());
    if (is_new) {
      unit_layers_.emplace_back();
      is_root.push_back(false);
    }
    layers_[layer].unit = known->second;
    unit_layers_[known->second].push_back(layer);
    if (tensors.shares[group_of[layer]]) is_root[known->second] = true;
  }

  units_.resize(unit_layers_.size());
  std::vector<std::size_t> index_of;  // by tensor id
  for (std::size_t id = 0; id < tensors.all.size(); ++id) {
    std::vector<TensorLayout>& unit = units_[unit_of_set.at(tensors.sets.find(tensors.all[id].group))].tensors;
    index_of.push_back(unit.size());
    unit.push_back({std::move(tensors.all[id].spec), static_cast<std::uint32_t>(id)});
  }
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer)
    for (const std::size_t id : tensors.ids_of[layer]) layers_[layer].tensors.push_back(index_of[id]);

  const Layout placed = make_layout(units_, 1);
  std::set<std::string> names;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].tensors = placed.units[unit].tensors;
    units_[unit].name = is_root[unit] ? "root" : common_name(units_[unit].tensors);
    if (units_[unit].name.empty() || !names.insert(units_[unit].name).second)
      units_[unit].name = fmt::format("unit.{}", unit);
  }
}

void FlatModel::freeze(std::span<const std::size_t> units) {
  for (const std::size_t unit : units) units_.at(unit).trained = false;
}

void FlatModel::count_slices_alone() {
  for (UnitSpec& unit : units_)
    for (TensorLayout& tensor : unit.tensors) tensor.counted = tensor.counted && tensor.spec.slice.has_value();
}

FlatModel FlatModel::part(Range layers) const {
  FlatModel part;
  std::vector<std::size_t> unit_of(units(), kNoUnit);                 // in the part
  std::vector<std::map<std::size_t, std::size_t>> index_of(units());  // by whole unit: tensors' places in the part
  for (std::size_t layer = layers.begin; layer < layers.end; ++layer)
    for (const std::size_t index : layers_[layer].tensors) index_of[layers_[layer].unit].emplace(index, 0);
  for (std::size_t layer = layers.begin; layer < layers.end; ++layer) {
    std::vector<std::size_t>& sources = part.sources_.emplace_back(sources_[layer]);
    for (std::size_t& source : sources) {
      check(source >= layers.begin, "layer {} reads an activation from before its stage", layer);
      source -= layers.begin;
    }
    LayerPlace& place = part.layers_.emplace_back();
    const std::size_t whole = layers_[layer].unit;
    if (whole == kNoUnit) continue;
    if (unit_of[whole] == kNoUnit) {
      unit_of[whole] = part.units_.size();
      UnitSpec& unit = part.units_.emplace_back(UnitSpec{units_[whole].name, {}, units_[whole].trained});
      part.unit_layers_.emplace_back();
      for (auto& [index, here] : index_of[whole]) {
        here = unit.tensors.size();
        unit.tensors.push_back(units_[whole].tensors[index]);
        unit.tensors.back().counted =
            units_[whole].tensors[index].counted && first_layer_of(whole, index) >= layers.begin;
      }
    }
    place.unit = unit_of[whole];
    part.unit_layers_[place.unit].push_back(layer - layers.begin);
    for (const std::size_t index : layers_[layer].tensors) place.tensors.push_back(index_of[whole].at(index));
  }
  const Layout placed = make_layout(part.units_, 1);
  for (std::size_t unit = 0; unit < part.units_.size(); ++unit) part.units_[unit].tensors = placed.units[unit].tensors;
  part.input_is_trained_ = first_trained_layer() < layers.begin;
  return part;
}

std::size_t FlatModel::first_layer_of(std::size_t unit, std::size_t tensor) const {
  for (const std::size_t layer : unit_layers_[unit])
    if (std::ranges::count(layers_[layer].tensors, tensor) > 0) return layer;
  fail(ErrorKind::bug, "tensor {} of unit {} is of no layer", tensor, unit);
}

std::size_t FlatModel::first_trained_layer() const {
  if (input_is_trained_) return 0;
  std::size_t first = layers();
  for (std::size_t unit = 0; unit < units(); ++unit)
    if (trained(unit)) first = std::min(first, unit_layers_[unit].front());
  for (std::size_t layer = 0; layer < first; ++layer)
    if (layers_[layer].table) first = layer;
  return first;
}

Range FlatModel::backward_layers(std::size_t unit) const {
  const auto& layers = unit_layers_[unit];
  const auto first = std::lower_bound(layers.begin(), layers.end(), first_trained_layer());
  return first == layers.end() ? Range{} : Range{*first, layers.back() + 1};
}

std::vector<Wanted> FlatModel::wanted() const {
  std::vector<Wanted> wanted;
  const auto depends = [&](std::size_t activation) {
    if (activation == 0) return input_is_trained_;
    return wanted[activation - 1].dx || wanted[activation - 1].gradients;
  };
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const std::size_t unit = unit_of(layer);
    const bool dx = std::any_of(sources_[layer].begin(), sources_[layer].end(), depends);
    wanted.push_back({.dx = dx, .gradients = layers_[layer].table || (unit != kNoUnit && trained(unit))});
  }
  return wanted;
}

std::vector<Range> FlatModel::runs() const {
  std::vector<Range> runs;
  std::size_t current_unit = kNoUnit;  // the unit of the current run, which grows from the last layer towards the first
  for (std::size_t layer = layers(); layer-- > 0;) {
    const std::size_t unit = unit_of(layer);
    if (runs.empty() || (unit != kNoUnit && unit != current_unit))
      runs.push_back({layer, layer + 1});
    else
      runs.back().begin = layer;
    if (unit != kNoUnit) current_unit = unit;
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

Binding::Binding(const FlatModel& model)
    : model_(&model), parameters_(model.layers()), gradients_(model.layers()), fresh_(model.units()) {
  for (std::size_t unit = 0; unit < model.units(); ++unit) fresh_[unit].assign(model.tensors(unit).size(), true);
}

void Binding::bind_parameters(std::size_t unit, ConstElements buffer) {
  for (const std::size_t layer : model_->layers_of(unit)) {
    parameters_[layer].clear();
    for (const std::size_t index : model_->tensor_indices(layer)) {
      const TensorLayout& tensor = model_->tensors(unit)[index];
      check(tensor.offset + tensor.spec.elements() <= buffer.size(), "a buffer of {} elements does not hold {}",
            buffer.size(), tensor.spec.name);
      parameters_[layer].push_back(buffer.subspan(tensor.offset, tensor.spec.elements()));
    }
  }
}

void Binding::bind_gradients(std::size_t unit, Elements buffer) {
  for (const std::size_t layer : model_->layers_of(unit)) {
    gradients_[layer].clear();
    for (const std::size_t index : model_->tensor_indices(layer)) {
      const TensorLayout& tensor = model_->tensors(unit)[index];
      check(tensor.offset + tensor.spec.elements() <= buffer.size(), "a buffer of {} elements does not hold {}",
            buffer.size(), tensor.spec.name);
      gradients_[layer].push_back({buffer.subspan(tensor.offset, tensor.spec.elements()), &fresh_[unit][index]});
    }
  }
}

void Binding::reset_fresh() {
  for (std::size_t unit = 0; unit < fresh_.size(); ++unit) reset_fresh(unit);
}

void Binding::reset_fresh(std::size_t unit) { std::fill(fresh_[unit].begin(), fresh_[unit].end(), true); }

void Binding::clear_unwritten(std::size_t unit) {
  for (const std::size_t layer : model_->layers_of(unit))
    for (const BoundGradient& gradient : gradients_[layer]) {
      if (!*gradient.fresh) continue;
      clear(gradient.values);
      *gradient.fresh = false;
    }
}

}  // namespace psring::worker
