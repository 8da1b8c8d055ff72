#pragma once

#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

/// --share-host-parameters (stage 3): all units lie whole, once for the workers of a shard group, in the first worker's
/// memory, which all of them map. Each worker updates its own range in place, and reads the ranges of the others there;
/// nothing is gathered. A worker books its own range.
///
/// No range is written while it is read: an owner updates after all gradients are reduced, so that all passes are over;
/// and a pass begins after all owners have updated.
class SharedParameters final : public Parameters {
 public:
  /// A collective of the owners. Throws usage, naming a rank, if they do not share memory.
  SharedParameters(const Plan& plan, const World& world, Workers& workers);
  ~SharedParameters() override;
  SharedParameters(const SharedParameters&) = delete;
  SharedParameters& operator=(const SharedParameters&) = delete;

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void updated() override;
  void quiesce() override;
  Elements owned(UnitId unit) override { return ownership_.of(unit, world_.units[unit].parameters); }
  void predict(Prediction& sum) const override { sum.worker_memory[Category::parameters] += booked_bytes_; }

 private:
  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  const Ownership ownership_;
  const std::size_t booked_bytes_;
  Arena* const arena_;
  std::span<std::byte> memory_;  ///< of the first rank's arena; empty in the other ranks
  ring::Work all_updated_;       ///< done once all owners have updated
};

}  // namespace psring::worker
