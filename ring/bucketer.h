#pragma once

#include <cstddef>
#include <vector>

#include <psring/common/base/range.h>

namespace psring::ring {

/// In which order gradients are gathered into buckets: as backward completes them, or the other way round, which
/// shows what the order is worth.
enum class BucketOrder : std::uint8_t { reverse, forward };

/// Gradients of neighbouring units that are reduced together: one latency for many small units, and a large model's
/// first buckets on their way while later ones are still being computed.
///
/// Pure: which units make which bucket, and which buckets may be launched. Buckets are launched in one order at all
/// ranks, whatever order their units become ready in.
class Bucketer {
 public:
  /// `bytes`: of each unit, in forward order. A bucket takes units until it has `bucket_bytes`, the first one
  /// `first_bytes`, so that it leaves early. A unit is never cut. One of no bytes goes with its neighbours, and is
  /// never waited for.
  Bucketer(const std::vector<std::size_t>& bytes, std::size_t bucket_bytes, std::size_t first_bytes, BucketOrder order);

  /// Units [begin, end) of each bucket, in the order in which they are launched.
  const std::vector<Range>& buckets() const { return buckets_; }

  void begin_step();
  /// The unit's gradient is complete: how many buckets may have been launched by now, from the first on.
  std::size_t ready(std::size_t unit);

 private:
  const std::vector<std::size_t> bytes_;
  std::vector<Range> buckets_;
  std::vector<bool> ready_;         ///< by unit
  std::vector<std::size_t> waits_;  ///< units that each bucket still waits for
  std::size_t launched_ = 0;
};

}  // namespace psring::ring
