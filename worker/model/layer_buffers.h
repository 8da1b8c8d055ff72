#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/device/buffer.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// All layers' buffers in one flat vector, laid out as a unit is; their ids follow the model's parameters'.
/// Throws usage where two buffers have one name, or a buffer that of a parameter.
UnitLayout buffer_layout(const Model& model);

/// A process's copy of the buffers of a model's layers (Layer::buffers), booked as Category::parameters. They start
/// as their specs say. REQUIRES: ledger outlives it.
class LayerBuffers {
 public:
  using List = std::span<const std::span<float>>;

  /// REQUIRES: `layout` is buffer_layout(model).
  LayerBuffers(const Model& model, const UnitLayout& layout, MemoryLedger& ledger);

  bool empty() const { return values_.empty(); }
  /// All of them, padding counted.
  std::span<float> values() const { return values_; }
  /// In the order of the layer's buffers().
  List of(std::size_t layer) const { return lists_[layer]; }

 private:
  Buffer memory_;
  std::span<float> values_;
  std::vector<std::vector<std::span<float>>> lists_;  ///< by layer
};

}  // namespace psring::worker
