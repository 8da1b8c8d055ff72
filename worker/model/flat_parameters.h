#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/worker/model/layer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

inline constexpr std::size_t kNoUnit = static_cast<std::size_t>(-1);

/// Layers that are to lie in one unit each, as --units says: `layer` gives every layer its own, `block` the model's
/// blocks, `root` one to all, a number N one to N layers after each other, and sets such as `0+3,1+2` one to each set.
/// Layers in none of them get their own. N and sets count layers that have parameters, from 0. Throws usage for
/// anything else, for a layer that the model has not, and for one that stands there twice.
std::vector<std::vector<std::size_t>> group_layers(const Model& model, std::string_view units);

/// The dotted components that all the tensors' names begin with, but never a whole name of several components:
/// `h.3` of h.3.ln_1.weight and h.3.attn.c_attn.bias, `layers.0` of layers.0.weight. "" where there are none.
std::string common_name(const std::vector<TensorLayout>& tensors);

class FlatModel;

/// The units that --freeze lists: by name, by number from 0, or by what the names of all of their tensors begin with,
/// whole components (`h.0`) or any with a star (`h.*`). Ascending. Throws usage for what names none, and where none
/// would be left to train.
std::vector<std::size_t> listed_units(const FlatModel& model, std::string_view list);

/// Which unit each layer's tensors lie in, and where. Groups that name the same tensor become one unit, called
/// `root`; other units are called as their tensors begin (`layers.0`, `h.3`). Units stand in the order of their
/// first layer, tensors within a unit and their ids in the model's order.
class FlatModel {
 public:
  /// REQUIRES: `groups` holds each layer of the model once. Throws usage where layers disagree on a shared
  /// tensor's shape.
  FlatModel(const Model& model, const std::vector<std::vector<std::size_t>>& groups);

  /// These units are not trained. At the beginning all are.
  void freeze(std::span<const std::size_t> units);

  Layout layout(std::size_t owners) const { return make_layout(units_, owners); }
  std::size_t units() const { return units_.size(); }
  std::size_t layers() const { return layers_.size(); }
  /// The unit that holds the layer's tensors; kNoUnit where it has none.
  std::size_t unit_of(std::size_t layer) const { return layers_[layer].unit; }
  /// The unit's layers, ascending. The first is the last that backward passes: after it the unit's gradient is
  /// complete. The last is the first that backward needs, and the last that forward does.
  std::span<const std::size_t> layers_of(std::size_t unit) const { return unit_layers_[unit]; }
  const std::string& name(std::size_t unit) const { return units_[unit].name; }
  bool trained(std::size_t unit) const { return units_[unit].trained; }
  /// Backward ends with it: nothing before it is trained. layers() where nothing is.
  std::size_t first_trained_layer() const;
  /// From the unit's first layer that backward passes to its last; empty where it passes none.
  Range backward_layers(std::size_t unit) const;
  /// Of each layer's backward: dx as long as a layer before it is trained.
  std::vector<Wanted> wanted() const;
  /// Ranges of neighbouring layers of one unit; layers without tensors go with those after them, so that
  /// a range ends with a layer that backward acquires its unit for. They cover all.
  std::vector<Range> runs() const;
  /// The layer's tensors, in the order of tensors(), as positions in its unit.
  std::span<const std::size_t> tensor_indices(std::size_t layer) const { return layers_[layer].tensors; }
  std::span<const TensorLayout> tensors(std::size_t unit) const { return units_[unit].tensors; }

 private:
  struct LayerPlace {
    std::size_t unit = kNoUnit;
    std::vector<std::size_t> tensors;  ///< indices in the unit
  };
  std::vector<UnitSpec> units_;  ///< with offsets: they do not depend on the owners
  std::vector<std::vector<std::size_t>> unit_layers_;
  std::vector<LayerPlace> layers_;
};

/// A tensor's gradient in its unit's buffer, whatever its type. `fresh`: no layer has written it yet; see Gradient.
struct BoundGradient {
  Elements values;
  bool* fresh = nullptr;
};

/// Lends layers their parameters and gradients out of the units' flat buffers, which may come and go (ZeRO 3): a
/// unit is bound before its layers run, and bound again where its buffer moves. It owns no buffer. What lies
/// between tensors (padding) is never written. REQUIRES: `model` outlives it.
class Binding {
 public:
  explicit Binding(const FlatModel& model);
  Binding(const Binding&) = delete;  ///< gradients point at its flags
  Binding& operator=(const Binding&) = delete;

  void bind_parameters(std::size_t unit, ConstElements buffer);
  void bind_gradients(std::size_t unit, Elements buffer);

  /// In the order of the layer's tensors().
  std::span<const ConstElements> parameters(std::size_t layer) const { return parameters_[layer]; }
  std::span<const BoundGradient> gradients(std::size_t layer) const { return gradients_[layer]; }

  /// From here each tensor's first writer overwrites: at the start of a step, or of a micro-batch.
  void reset_fresh();
  void reset_fresh(std::size_t unit);
  /// Zero in the unit's tensors that no layer has written since: a gradient that does not come is none.
  void clear_unwritten(std::size_t unit);

 private:
  const FlatModel* model_;
  std::vector<std::vector<ConstElements>> parameters_;  ///< by layer
  std::vector<std::vector<BoundGradient>> gradients_;   ///< by layer
  std::vector<std::deque<bool>> fresh_;                 ///< by unit and tensor
};

}  // namespace psring::worker
