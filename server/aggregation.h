#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>
#include <psring/server/aggregator.h>

namespace psring::server {

/// Aggregates the workers' gradients of one piece, a part at a time: the rule works in f32, and the result is rounded
/// once to the gradients' type. Has scratch memory, so each thread has its own.
class Aggregation {
 public:
  /// `gradients`: in worker order, of equal size and type. REQUIRES: they and the rule outlive this.
  Aggregation(const Aggregator& rule, std::span<const ConstElements> gradients);

  /// Writes the aggregate of elements `part`. REQUIRES: `out` has the gradients' type and the size of `part`.
  void run(Range part, Elements out);

 private:
  const Aggregator& rule_;
  const std::span<const ConstElements> gradients_;
  std::vector<const float*> inputs_;
  std::vector<float> widened_;  ///< a block of each gradient and of the result; empty if gradients are f32
};

}  // namespace psring::server
