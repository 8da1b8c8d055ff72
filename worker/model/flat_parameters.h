#pragma once

#include <cstddef>
#include <deque>
#include <optional>
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

/// Returns the layers of each unit, according to --units: `layer` makes a unit of each layer, `block` of each block of
/// the model, `root` one unit of all layers. A number N makes a unit of every N consecutive layers, and sets such as
/// `0+3,1+2` make a unit of each set. A layer in no set gets its own unit. N and sets count only layers with
/// parameters, from 0. Throws usage for any other text, for a layer that the model does not have, and for a layer
/// listed twice.
std::vector<std::vector<std::size_t>> group_layers(const Model& model, std::string_view units);

/// Returns the dotted components that are common to the beginning of all the tensors' names, but never a complete name
/// of several components: `h.3` of h.3.ln_1.weight and h.3.attn.c_attn.bias, `layers.0` of layers.0.weight. Returns ""
/// if there are none.
std::string common_name(const std::vector<TensorLayout>& tensors);

class FlatModel;

/// Returns the units that --freeze lists, ascending. An entry is a unit's name, its number from 0, or a prefix of the
/// names of all its tensors: complete components (`h.0`), or any prefix with a star (`h.*`). Throws usage if an entry
/// names no unit, or if no unit would be left to train.
std::vector<std::size_t> listed_units(const FlatModel& model, std::string_view list);

/// Maps each layer's tensors to a unit and a place. Groups that name the same tensor become one unit with the name
/// `root`; other units are named by the common prefix of their tensors (`layers.0`, `h.3`). Units are in the order of
/// their first layer; tensors within a unit, and tensor ids, are in the model's order.
class FlatModel {
 public:
  /// REQUIRES: `groups` contains each layer of the model once. Throws usage if layers disagree on the shape of a shared
  /// tensor.
  FlatModel(const Model& model, const std::vector<std::vector<std::size_t>>& groups);

  /// Marks units as not trained. Initially all units are trained.
  void freeze(std::span<const std::size_t> units);

  /// Marks tensors that are no slices as not counted (TensorLayout::counted): another rank of the tensor-parallel group
  /// counts them.
  void count_slices_alone();

  /// Returns the part of these layers: their units and tensors, with the same names and ids. A unit with layers outside
  /// of the range keeps its tensors of the layers within. Tensors that earlier layers name, too, are not counted
  /// (TensorLayout::counted). REQUIRES: a layer reads no activation from before the range but the last one.
  FlatModel part(Range layers) const;
  /// The output of the layers before this part depends on a layer that is trained: its gradient is wanted.
  bool input_is_trained() const { return input_is_trained_; }

  Layout layout(std::size_t owners) const { return make_layout(units_, owners); }
  std::size_t units() const { return units_.size(); }
  std::size_t layers() const { return layers_.size(); }
  /// Returns the unit that holds the layer's tensors; kNoUnit if the layer has none.
  std::size_t unit_of(std::size_t layer) const { return layers_[layer].unit; }
  /// Returns the table that the layer reads.
  std::optional<std::size_t> table_of(std::size_t layer) const { return layers_[layer].table; }
  /// Returns the unit's layers, ascending. Backward runs the first of them last, and the unit's gradient is complete
  /// after it. The last of them is the first in backward, and the last in forward.
  std::span<const std::size_t> layers_of(std::size_t unit) const { return unit_layers_[unit]; }
  const std::string& name(std::size_t unit) const { return units_[unit].name; }
  bool trained(std::size_t unit) const { return units_[unit].trained; }
  /// Returns the layer at which backward ends, because no earlier layer is trained; layers() if no layer is trained.
  std::size_t first_trained_layer() const;
  /// Returns the range from the unit's first layer that backward runs to its last layer; empty if backward runs none.
  Range backward_layers(std::size_t unit) const;
  /// Returns the wanted gradients of each layer's backward: dx is wanted if an input depends on a layer that is
  /// trained.
  std::vector<Wanted> wanted() const;
  /// Returns ranges of neighbouring layers of one unit, which together cover all layers. A layer without tensors
  /// belongs to the range of the layer after it, so that a range ends with a layer whose unit backward acquires.
  std::vector<Range> runs() const;
  /// Returns the layer's tensors as indices in its unit, in the order of tensors().
  std::span<const std::size_t> tensor_indices(std::size_t layer) const { return layers_[layer].tensors; }
  std::span<const TensorLayout> tensors(std::size_t unit) const { return units_[unit].tensors; }

 private:
  FlatModel() = default;
  struct LayerPlace {
    std::size_t unit = kNoUnit;
    std::vector<std::size_t> tensors;  ///< indices in the unit
    std::optional<std::size_t> table = std::nullopt;
  };
  /// The first layer that names a unit's tensor.
  std::size_t first_layer_of(std::size_t unit, std::size_t tensor) const;

  std::vector<std::vector<std::size_t>> sources_;  ///< activations that each layer reads; see sources_of
  std::vector<UnitSpec> units_;                    ///< with offsets, which do not depend on the owners
  std::vector<std::vector<std::size_t>> unit_layers_;
  std::vector<LayerPlace> layers_;
  bool input_is_trained_ = false;
};

/// A tensor's gradient in its unit's buffer, in the buffer's type. `fresh`: no layer has written the gradient yet; see
/// Gradient.
struct BoundGradient {
  Elements values;
  bool* fresh = nullptr;
};

/// Gives layers access to their parameters and gradients in the units' flat buffers, which may come and go (ZeRO 3): a
/// unit is bound before its layers run, and bound again if its buffer moves. A Binding owns no buffer and never writes
/// the padding between tensors. REQUIRES: `model` outlives the binding.
class Binding {
 public:
  explicit Binding(const FlatModel& model);
  Binding(const Binding&) = delete;  ///< gradients point to its flags
  Binding& operator=(const Binding&) = delete;

  void bind_parameters(std::size_t unit, ConstElements buffer);
  void bind_gradients(std::size_t unit, Elements buffer);

  /// Parameters and gradients are in the order of the layer's tensors().
  std::span<const ConstElements> parameters(std::size_t layer) const { return parameters_[layer]; }
  std::span<const BoundGradient> gradients(std::size_t layer) const { return gradients_[layer]; }

  /// Makes the next writer of each tensor overwrite its gradient: at the start of a step, or of a micro-batch.
  void reset_fresh();
  void reset_fresh(std::size_t unit);
  /// Sets the gradients of the unit's tensors to zero that no layer has written since reset_fresh.
  void clear_unwritten(std::size_t unit);

 private:
  const FlatModel* model_;
  std::vector<std::vector<ConstElements>> parameters_;  ///< by layer
  std::vector<std::vector<BoundGradient>> gradients_;   ///< by layer
  std::vector<std::deque<bool>> fresh_;                 ///< by unit and tensor
};

}  // namespace psring::worker
