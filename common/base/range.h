#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <psring/common/base/text/error.h>

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

/// How much of each unit every owner has, relative to the other owners. Without weights all owners have the same.
class CutWeights {
 public:
  CutWeights() = default;
  /// One weight for each owner. REQUIRES: all are positive, and their sum is below 2^32.
  explicit CutWeights(std::span<const std::uint32_t> weights) : before_{0} {
    for (const std::uint32_t weight : weights) {
      check(weight > 0, "an owner without a share");
      before_.push_back(before_.back() + weight);
    }
    check(before_.back() <= std::numeric_limits<std::uint32_t>::max(), "weights that add up to {}", before_.back());
  }

  bool even() const { return before_.empty(); }
  std::size_t owners() const { return even() ? 0 : before_.size() - 1; }
  std::uint32_t weight(std::size_t owner) const {
    return static_cast<std::uint32_t>(before_[owner + 1] - before_[owner]);
  }
  /// The part of `amount` that the owners before `owner` have, rounded down. REQUIRES: !even(), owner <= owners().
  std::size_t part_before(std::size_t amount, std::size_t owner) const {
    const std::uint64_t all = before_.back();
    return amount / all * before_[owner] + amount % all * before_[owner] / all;  // no product exceeds 64 bits
  }
  friend bool operator==(const CutWeights&, const CutWeights&) = default;

 private:
  std::vector<std::uint64_t> before_;  ///< the sum of the weights before each owner, and of all; empty: even
};

/// A flat buffer, cut into one range for each owner, in order. Cuts lie on multiples of kCut, and no range is empty.
/// Without weights all ranges have the same size. With weights every owner has one block of kCut elements, and the
/// other blocks are divided in proportion to the weights, to within a block.
/// REQUIRES: `elements` is a multiple of kCut * owners (see `padded`), or with weights a multiple of kCut with a block
/// for each owner; the weights are even or for as many owners, and outlive the partition.
class Partition {
 public:
  Partition(std::size_t elements, std::size_t owners, const CutWeights* weights = nullptr)
      : elements_(elements), owners_(owners), weights_(weights != nullptr && !weights->even() ? weights : nullptr) {
    check(owners > 0 && (weights_ == nullptr || elements == 0 ? elements % (kCut * owners) == 0
                                                              : elements % kCut == 0 && elements >= kCut * owners),
          "cannot cut {} elements among {} owners", elements, owners);
    check(weights_ == nullptr || elements == 0 || weights_->owners() == owners, "weights for {} of {} owners",
          weights_ == nullptr ? 0 : weights_->owners(), owners);
  }
  static constexpr std::size_t padded(std::size_t elements, std::size_t owners) {
    return round_up(elements, kCut * owners);
  }

  std::size_t elements() const { return elements_; }
  std::size_t owners() const { return owners_; }
  Range range(std::size_t owner) const { return {begin(owner), begin(owner + 1)}; }

 private:
  std::size_t begin(std::size_t owner) const {
    if (weights_ == nullptr || elements_ == 0) return elements_ / owners_ * owner;
    const std::size_t spare = elements_ / kCut - owners_;
    return kCut * (owner + weights_->part_before(spare, owner));
  }

  std::size_t elements_;
  std::size_t owners_;
  const CutWeights* weights_;  ///< null: even
};

}  // namespace psring
