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

std::vector<Run> runs_of(const TensorSpec& tensor, Range range) {
  if (range.empty()) return {};
  if (!tensor.slice) return {{range.begin, range.begin, range.size()}};
  const TensorSlice& slice = *tensor.slice;
  std::size_t inner = 1;  // elements of one index of the axis
  for (std::size_t axis = slice.axis + 1; axis < slice.whole_shape.size(); ++axis) inner *= slice.whole_shape[axis];
  std::size_t extent = 0;  // of the slice, along the axis
  for (const Range& part : slice.ranges) extent += part.size();
  check(extent == tensor.shape.at(slice.axis), "the slice of {} has {} indices of axis {}, its shape {}", tensor.name,
        extent, slice.axis, tensor.shape[slice.axis]);
  const std::size_t whole_extent = slice.whole_shape[slice.axis];
  std::vector<Run> runs;
  for (std::size_t outer = range.begin / (extent * inner); outer * extent * inner < range.end; ++outer) {
    std::size_t begin = outer * extent * inner;
    for (const Range& part : slice.ranges) {
      const Range run{begin, begin + part.size() * inner};
      const Range wanted = run.intersect(range);
      begin = run.end;
      if (wanted.empty()) continue;
      const std::size_t whole = (outer * whole_extent + part.begin) * inner + wanted.begin - run.begin;
      if (!runs.empty() && runs.back().whole_begin + runs.back().size == whole)
        runs.back().size += wanted.size();
      else
        runs.push_back({wanted.begin, whole, wanted.size()});
    }
  }
  return runs;
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

Range table_buckets(std::size_t owners, std::size_t owner) {
  check(owners > 0 && owners <= kMostTableOwners, "cannot cut a table among {} owners", owners);
  const auto begin = [&](std::size_t of) { return kMostTableOwners * of / owners * kCut; };
  return {begin(owner), begin(owner + 1)};
}

Range table_piece(Range owned, std::size_t pieces, std::size_t piece) {
  const std::size_t blocks = owned.size() / kCut;
  return {owned.begin + blocks * piece / pieces * kCut, owned.begin + blocks * (piece + 1) / pieces * kCut};
}

void initialise(const Init& init, const CounterRng& rng, std::size_t first, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t index = first + i;
    switch (init.kind) {
      case Init::Kind::constant:
        out[i] = init.a;
        break;
      case Init::Kind::uniform:
        out[i] = init.a * (2.0F * rng.uniform(index) - 1.0F);
        break;
      case Init::Kind::normal:
        out[i] = init.a * rng.normal(index);
        break;
    }
  }
}

void initialise(const UnitLayout& unit, Range range, std::uint64_t seed, std::span<float> out) {
  check(out.size() == range.size(), "initialise: {} elements for a range of {}", out.size(), range.size());
  std::fill(out.begin(), out.end(), 0.0F);
  for (const TensorLayout& tensor : unit.tensors) {
    const Range whole{tensor.offset, tensor.offset + tensor.spec.elements()};
    const Range part = whole.intersect(range);
    if (part.empty()) continue;
    const CounterRng rng({.seed = seed, .purpose = Purpose::initialise, .tensor = tensor.id});
    for (const Run& run : runs_of(tensor.spec, {part.begin - whole.begin, part.end - whole.begin}))
      initialise(tensor.spec.init, rng, run.whole_begin, out.subspan(whole.begin + run.begin - range.begin, run.size));
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
