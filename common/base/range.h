#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>

#include <psring/common/base/error.h>

namespace psring {

/// Tensors start at, and units are cut at, multiples of this many elements.
inline constexpr std::size_t kCut = 256;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Elements [begin, end) of a flat buffer.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  constexpr std::size_t size() const { return end - begin; }
  constexpr bool empty() const { return begin >= end; }
  constexpr bool contains(Range other) const { return begin <= other.begin && other.end <= end; }
  constexpr Range intersect(Range other) const {
    const std::size_t b = std::max(begin, other.begin);
    return {b, std::max(b, std::min(end, other.end))};
  }
  friend constexpr auto operator<=>(const Range&, const Range&) = default;
};

/// A flat buffer, cut evenly among owners: owner i has [i * share, (i + 1) * share).
/// REQUIRES: `elements` is a multiple of kCut * owners (see `padded`).
class Partition {
 public:
  Partition(std::size_t elements, std::size_t owners) : elements_(elements), owners_(owners) {
    check(owners > 0 && elements % (kCut * owners) == 0, "cannot cut {} elements among {} owners", elements, owners);
  }
  static constexpr std::size_t padded(std::size_t elements, std::size_t owners) {
    return round_up(elements, kCut * owners);
  }

  std::size_t elements() const { return elements_; }
  std::size_t owners() const { return owners_; }
  std::size_t share() const { return elements_ / owners_; }
  Range range(std::size_t owner) const { return {owner * share(), (owner + 1) * share()}; }
  std::size_t owner(std::size_t element) const { return element / share(); }

 private:
  std::size_t elements_;
  std::size_t owners_;
};

}  // namespace psring
