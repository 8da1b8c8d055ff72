#pragma once

#include <cstddef>
#include <optional>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/ring/collective.h>

namespace psring::worker {

/// Returns how many elements the trained units of [begin, end) have.
std::size_t trained_elements(const Layout& layout, Range units);
/// Returns the ranges of each owner in a vector that holds the trained units of [begin, end) one after the other.
ring::Parts owners_of(const Layout& layout, Range units);

/// The range of each unit that this process updates: the whole unit, or its owner's part of the layout's partition.
class Ownership {
 public:
  /// `owner`: this process's number among the layout's owners; none: it updates whole units.
  explicit Ownership(const Layout& layout, std::optional<std::size_t> owner = std::nullopt)
      : layout_(layout), owner_(owner) {}

  Range range(std::size_t unit) const {
    return owner_ ? layout_.partition(unit).range(*owner_) : Range{0, layout_.units[unit].elements};
  }
  /// `whole`: values of the whole unit. Empty if these are.
  Elements of(std::size_t unit, Elements whole) const { return whole.empty() ? whole : whole.part(range(unit)); }

 private:
  const Layout& layout_;
  const std::optional<std::size_t> owner_;
};

}  // namespace psring::worker
