#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Lays out all layers' buffers in one flat vector, like a unit. Their ids follow the ids of the model's parameters.
/// Throws usage if two buffers, or a buffer and a parameter, have the same name.
UnitLayout buffer_layout(const Model& model);
/// The buffers of one stage of a model (take_stage), with the ids that they have in the layout of the whole model.
UnitLayout buffer_layout(const Model& stage, const UnitLayout& whole);

/// A process's copy of the model's layer buffers (Layer::buffers), booked as Category::parameters. They start with
/// their specs' initial values. REQUIRES: the ledger outlives it.
class LayerBuffers {
 public:
  using List = std::span<const std::span<float>>;

  /// REQUIRES: `layout` is buffer_layout(model).
  LayerBuffers(const Model& model, const UnitLayout& layout, MemoryLedger& ledger);

  bool empty() const { return values_.empty(); }
  /// All buffers, including padding.
  std::span<float> values() const { return values_; }
  /// A layer's buffers, in the order of its buffers().
  List of(std::size_t layer) const { return lists_[layer]; }

 private:
  Buffer memory_;
  std::span<float> values_;
  std::vector<std::vector<std::span<float>>> lists_;  ///< by layer
};

}  // namespace psring::worker
