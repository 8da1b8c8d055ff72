#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>

namespace psring::test {

/// A model in one unit, or with a tensor in each: what is saved as the one is read as the other.
inline Layout saved_layout(std::size_t owners, bool one_unit = true) {
  const std::vector<TensorSpec> specs{{"a", {100}, {}}, {"b", {3, 500}, {}}, {"none", {0}, {}}, {"c", {270000}, {}}};
  std::vector<UnitSpec> units;
  for (std::uint32_t id = 0; id < specs.size(); ++id) {
    if (units.empty() || !one_unit) units.push_back({specs[id].name, {}});
    units.back().tensors.push_back({specs[id], id, 0});
  }
  return make_layout(std::move(units), owners);
}

/// A number of its own for each element of each array at each step; padding is zero.
inline float element(const std::string& tensor, std::size_t index, std::size_t array, std::uint64_t step) {
  return static_cast<float>(index % 4093) + 0.25F * static_cast<float>(array) +
         4096.0F * static_cast<float>(step % 256 + 256 * static_cast<std::size_t>(tensor[0] - 'a'));
}

inline const std::vector<std::string>& arrays() {
  static const std::vector<std::string> all{optim::kValues, optim::slot_array(0), optim::slot_array(1)};
  return all;
}

inline std::vector<float> elements(const UnitLayout& unit, Range range, std::size_t array, std::uint64_t step) {
  std::vector<float> values(range.size(), 0.0F);
  for (const TensorLayout& tensor : unit.tensors) {
    const Range part = Range{tensor.offset, tensor.offset + tensor.spec.elements()}.intersect(range);
    for (std::size_t i = part.begin; i < part.end; ++i)
      values[i - range.begin] = element(tensor.spec.name, i - tensor.offset, array, step);
  }
  return values;
}

inline void save_share(const std::filesystem::path& aside, const Layout& layout, std::size_t owner,
                       std::uint64_t step) {
  std::vector<std::vector<float>> memory;
  std::vector<optim::StatePart> parts;
  for (std::size_t u = 0; u < layout.units.size(); ++u)
    for (std::size_t array = 0; array < arrays().size(); ++array) {
      const Range range = layout.partition(u).range(owner);
      memory.push_back(elements(layout.units[u], range, array, step));
      parts.push_back({&layout.units[u], range, arrays()[array], memory.back()});
    }
  optim::write_shard(aside / ("server-" + std::to_string(owner) + optim::kShardSuffix), step, parts);
}

inline optim::Manifest manifest_of(const Layout& layout, std::uint64_t step) {
  optim::Manifest manifest{
      .step = step, .facts = {{"model", "a \"b\""}}, .scalars = {{"loss_scale", 0.1}}, .tensors = {}};
  for (const UnitLayout& unit : layout.units)
    for (const TensorLayout& tensor : unit.tensors)
      manifest.tensors.push_back({tensor.spec.name, tensor.spec.shape, arrays()});
  return manifest;
}

/// As the owners of a job would, one after the other.
inline void save_checkpoint(const optim::CheckpointFolder& folder, const Layout& layout, std::uint64_t step) {
  for (std::size_t owner = 0; owner < layout.owners; ++owner) save_share(folder.aside(step), layout, owner, step);
  optim::write_manifest(folder.aside(step), manifest_of(layout, step));
  folder.commit(step);
}

/// Does it hold what was saved, seen through this layout, by each of its owners?
inline bool holds(const optim::Checkpoint& checkpoint, const Layout& layout, std::uint64_t step) {
  if (checkpoint.step() != step) return false;
  for (std::size_t u = 0; u < layout.units.size(); ++u)
    for (std::size_t owner = 0; owner < layout.owners; ++owner)
      for (std::size_t array = 0; array < arrays().size(); ++array) {
        const Range range = layout.partition(u).range(owner);
        std::vector<float> values(range.size(), -1.0F);
        checkpoint.read(layout.units[u], range, arrays()[array], values);
        if (values != elements(layout.units[u], range, array, step)) return false;
      }
  return true;
}

}  // namespace psring::test
