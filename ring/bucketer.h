#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::ring {

/// The order in which gradients join buckets: as backward completes them, or forward, for measuring the gain of the
/// right order.
enum class BucketOrder : std::uint8_t { reverse, forward };

/// Groups the gradients of neighbouring units into buckets that are reduced together: many small units pay one latency,
/// and the first buckets of a large model travel while backward still computes the others.
///
/// Pure bookkeeping: which units form which bucket, and which buckets may be launched. All ranks launch buckets in the
/// same order, in whatever order the units become ready.
class Bucketer {
 public:
  /// `bytes`: of each unit, in forward order. A bucket takes units until it has `bucket_bytes`; the first bucket until
  /// it has `first_bytes`, so that it leaves early. A unit is never cut. A unit of zero bytes joins its neighbours, and
  /// no bucket waits for it.
  Bucketer(const std::vector<std::size_t>& bytes, std::size_t bucket_bytes, std::size_t first_bytes, BucketOrder order);

  /// Units [begin, end) of each bucket, in the order in which they are launched.
  const std::vector<Range>& buckets() const { return buckets_; }

  void begin_step();
  /// The unit's gradient is complete. Returns the number of buckets that may be launched by now, from the first on.
  std::size_t ready(std::size_t unit);

 private:
  const std::vector<std::size_t> bytes_;
  std::vector<Range> buckets_;
  std::vector<bool> ready_;         ///< by unit
  std::vector<std::size_t> waits_;  ///< units that each bucket still waits for
  std::size_t launched_ = 0;
};

}  // namespace psring::ring
