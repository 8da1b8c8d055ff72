#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/layers/layer_buffers.h>

namespace psring::worker {

UnitLayout buffer_layout(const Model& model) {
  std::set<std::string> names;
  for (const auto& layer : model.layers)
    for (TensorSpec& tensor : layer->tensors()) names.insert(std::move(tensor.name));
  auto id = static_cast<std::uint32_t>(names.size());
  UnitSpec unit{.name = "buffers", .tensors = {}};
  for (const auto& layer : model.layers)
    for (TensorSpec& buffer : layer->buffers()) {
      if (!names.insert(buffer.name).second)
        fail(ErrorKind::usage, "model {}: the name {} stands twice, and one of the two is a buffer", model.name,
             buffer.name);
      unit.tensors.push_back({.spec = std::move(buffer), .id = id++});
    }
  return std::move(make_layout({std::move(unit)}, 1).units.front());
}

UnitLayout buffer_layout(const Model& stage, const UnitLayout& whole) {
  UnitSpec unit{.name = whole.name, .tensors = {}};
  for (const auto& layer : stage.layers)
    for (TensorSpec& buffer : layer->buffers()) {
      const auto found = std::ranges::find_if(
          whole.tensors, [&](const TensorLayout& tensor) { return tensor.spec.name == buffer.name; });
      check(found != whole.tensors.end(), "the whole model has no buffer {}", buffer.name);
      unit.tensors.push_back({.spec = std::move(buffer), .id = found->id});
    }
  return std::move(make_layout({std::move(unit)}, 1).units.front());
}

LayerBuffers::LayerBuffers(const Model& model, const UnitLayout& layout, MemoryLedger& ledger)
    : memory_(layout.elements == 0 ? Buffer() : Buffer(layout.elements * sizeof(float), Category::parameters, ledger)),
      values_(memory_.as<float>()),
      lists_(model.layers.size()) {
  initialise(layout, {0, values_.size()}, 0, values_);
  auto tensor = layout.tensors.begin();
  for (std::size_t layer = 0; layer < lists_.size(); ++layer)
    for (std::size_t left = model.layers[layer]->buffers().size(); left > 0; --left, ++tensor)
      lists_[layer].push_back(values_.subspan(tensor->offset, tensor->spec.elements()));
}

}  // namespace psring::worker
