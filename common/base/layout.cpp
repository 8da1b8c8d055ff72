#include <algorithm>
#include <utility>

#include <psring/common/base/layout.h>
#include <psring/common/base/rng.h>

namespace psring {

std::size_t TensorSpec::elements() const {
  std::size_t product = 1;
  for (const std::size_t extent : shape) product *= extent;
  return product;
}

std::size_t Layout::elements() const {
  std::size_t sum = 0;
  for (const UnitLayout& unit : units) sum += unit.elements;
  return sum;
}

std::size_t Layout::trained_elements() const {
  std::size_t sum = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit) sum += trained_elements(unit);
  return sum;
}

std::size_t Layout::owned_elements(std::size_t owner) const {
  std::size_t sum = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit) sum += owned(unit, owner);
  return sum;
}

std::size_t Layout::owned_trained_elements(std::size_t owner) const {
  std::size_t sum = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    if (units[unit].trained) sum += owned(unit, owner);
  return sum;
}

std::vector<std::size_t> Layout::trained() const {
  std::vector<std::size_t> list;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    if (units[unit].trained) list.push_back(unit);
  return list;
}

std::vector<std::size_t> Layout::offsets() const {
  std::vector<std::size_t> offsets;
  std::size_t trained = 0;
  std::size_t frozen = trained_elements();
  for (const UnitLayout& unit : units) {
    std::size_t& next = unit.trained ? trained : frozen;
    offsets.push_back(next);
    next += unit.elements;
  }
  return offsets;
}

Layout make_layout(std::vector<UnitSpec> units, std::size_t owners) {
  Layout layout;
  layout.owners = owners;
  for (UnitSpec& unit : units) {
    std::size_t offset = 0;
    for (TensorLayout& tensor : unit.tensors) {
      tensor.offset = offset;
      offset += round_up(tensor.spec.elements(), kCut);
    }
    layout.units.push_back(
        {std::move(unit.name), std::move(unit.tensors), Partition::padded(offset, owners), unit.trained});
  }
  return layout;
}

void initialise(const UnitLayout& unit, Range range, std::uint64_t seed, std::span<float> out) {
  check(out.size() == range.size(), "initialise: {} elements for a range of {}", out.size(), range.size());
  std::fill(out.begin(), out.end(), 0.0F);
  for (const TensorLayout& tensor : unit.tensors) {
    const Range whole{tensor.offset, tensor.offset + tensor.spec.elements()};
    const Range part = whole.intersect(range);
    const Init init = tensor.spec.init;
    const CounterRng rng({.seed = seed, .purpose = Purpose::initialise, .tensor = tensor.id});
    for (std::size_t i = part.begin; i < part.end; ++i) {
      const std::size_t index = i - whole.begin;
      float& value = out[i - range.begin];
      switch (init.kind) {
        case Init::Kind::constant:
          value = init.a;
          break;
        case Init::Kind::uniform:
          value = init.a * (2.0F * rng.uniform(index) - 1.0F);
          break;
        case Init::Kind::normal:
          value = init.a * rng.normal(index);
          break;
      }
    }
  }
}

void clear_padding(const UnitLayout& unit, Range range, Elements values) {
  const auto clear = [&](Range gap) {
    const Range here = gap.intersect(range);
    if (!here.empty()) psring::clear(values.subspan(here.begin - range.begin, here.size()));
  };
  std::size_t end = 0;
  for (const TensorLayout& tensor : unit.tensors) {
    clear({end, tensor.offset});
    end = tensor.offset + tensor.spec.elements();
  }
  clear({end, unit.elements});
}

}  // namespace psring
