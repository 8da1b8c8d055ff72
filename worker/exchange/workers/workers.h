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

/// Every worker keeps all parameters, and updates its own range of each (ZeRO stages 1 and 2). After an update, the
/// owners' ranges are all-gathered; a forward pass waits for the units that it reads. `calls`: the units [begin, end)
/// that one all-gather moves.
std::unique_ptr<Parameters> make_gathered_parameters(const Plan& plan, const World& world, Workers& workers,
                                                     std::vector<Range> calls);

/// --share-host-parameters (stage 3): all units lie whole, once for the workers of a shard group, in the first worker's
/// memory, which all of them map. Each worker updates its own range in place, and reads the ranges of the others there;
/// nothing is gathered. A worker books its own range.
///
/// No range is written while it is read: an owner updates after all gradients are reduced, so that all passes are over;
/// and a pass begins after all owners have updated.
/// A collective of the owners. Throws usage, naming a rank, if they do not share memory.
std::unique_ptr<Parameters> make_shared_parameters(const Plan& plan, const World& world, Workers& workers);

}  // namespace psring::worker
