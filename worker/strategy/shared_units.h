#pragma once

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// --share-host-parameters: all units' parameters, whole, once for the ranks of a group, in memory that each of them
/// maps: the first one's. Each owns its range of every unit, and alone writes there; it books that much.
///
/// Who reads has to know that all owners have finished their update, who writes that nobody reads any more: that is the
/// strategy's to see to.
class SharedUnits {
 public:
  /// A collective of `owners`. Fills in the units' parameters, which are zero. Throws usage, naming a rank, where they
  /// do not share memory.
  SharedUnits(const Context& context, ring::ProcessGroup& owners);
  ~SharedUnits();
  SharedUnits(const SharedUnits&) = delete;
  SharedUnits& operator=(const SharedUnits&) = delete;

 private:
  const std::size_t booked_bytes_;
  MemoryLedger& ledger_;
  Arena* arena_;
  std::span<std::byte> memory_;  ///< of the first rank's arena; none at others
};

}  // namespace psring::worker
