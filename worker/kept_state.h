#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/ring/process_group.h>
#include <psring/worker/strategy/abilities.h>

namespace psring::worker {

/// All that a job needs to go on, as a worker had it between two steps: values in f32 (or what narrower parameters
/// have in f32) and the optimizer's state, whole, in this process's memory. What a checkpoint is on a disk.
struct KeptState {
  std::uint64_t step = 0;  ///< that comes next
  std::map<std::string, double> scalars;
  /// By unit and name of array (optim/checkpoint/shard.h), each of the unit's elements.
  std::vector<std::map<std::string, std::vector<float>>> units;

  /// A strategy's, where it has all of it.
  static std::optional<KeptState> of(const Abilities& able, const Layout& layout);
  /// Makes a run begin with it. REQUIRES: it outlives the plan.
  void restore(Plan& plan) const;
};

/// After a regroup: everybody gets the state of the worker that has come furthest, where any has one. A collective;
/// where it throws, `kept` is what it was. `slots`: of the optimizer; `scalars`: those of a run that begins.
void share_newest(ring::ProcessGroup& group, const Layout& layout, std::size_t slots,
                  const std::map<std::string, double>& scalars, std::optional<KeptState>& kept);

}  // namespace psring::worker
