#pragma once

#include <psring/worker/exchange/parts.h>
#include <psring/worker/exchange/workers/shard_groups.h>

namespace psring::worker {

/// The other workers of the data-parallel group, reached by collectives.
class Workers final : public Peers {
 public:
  /// REQUIRES: World::group; plan and world outlive it.
  Workers(const Plan& plan, const World& world);

  ring::ProcessGroup& group() const { return *world_.group; }
  /// The ranks that divide every unit among themselves, and their replicas.
  ShardGroups& groups() { return groups_; }
  const ShardGroups& groups() const { return groups_; }
  ring::ProcessGroup& owners() const { return groups_.owners(); }

  /// Collectives that start while the result exists concern these units, for the event stream.
  Events::Topic about(Range units) const { return {world_.events, units}; }
  /// Everybody gets rank 0's values, and its layers' buffers; returns when all have them. Start-up traffic, which
  /// counts as control.
  void broadcast(Elements values);
  /// Waits for the operation, and counts the time.
  void wait(ring::Work& work, Events::Source source = Events::Source::current());

  Step first() const override { return {plan_.first_step}; }
  void end_step(Step /*step*/) override { account(); }
  /// Shares rank 0's layers' buffers, which are not read during training: so evaluation reads the same ones everywhere.
  void quiesce() override;
  bool shares_buffers() const override { return true; }
  void wait_saved(std::uint64_t /*step*/) override { group().barrier().wait(); }
  /// With a device, a wait is measured some steps later.
  Nanoseconds waited() const override;

 private:
  void share_buffers();
  /// Counts the bytes that were moved since the last call.
  void account();

  const Plan& plan_;
  const World& world_;
  ShardGroups groups_;
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
