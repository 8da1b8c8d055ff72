#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/ring/process_group.h>
#include <psring/worker/strategy/abilities.h>

namespace psring::worker {

/// Everything that a job needs to go on, as a worker had it between two steps: values in f32 (for narrower parameters
/// their f32 copy) and the optimizer's state, whole. It is a checkpoint in this process's memory.
struct KeptState {
  std::uint64_t step = 0;  ///< that comes next
  std::map<std::string, double> scalars;
  /// By unit and name of array (optim/checkpoint/shard.h), each of the unit's elements.
  std::vector<std::map<std::string, std::vector<float>>> units;

  /// True if the job's workers keep their state over the loss of a process.
  static bool is_kept(const JobOptions& job);
  /// Returns the state of a strategy that has all of it.
  static std::optional<KeptState> of(const Abilities& able, const Layout& layout);
  /// Makes a run begin with it. REQUIRES: it outlives the plan.
  void restore(Plan& plan) const;
};

/// After a regroup: every worker gets the state of the most advanced worker that has one, if there is any. A
/// collective. If it throws, `kept` is unchanged. `slots`: the optimizer's; `scalars`: the scalars of a run that
/// begins.
void share_newest(ring::ProcessGroup& group, const Layout& layout, std::size_t slots,
                  const std::map<std::string, double>& scalars, std::optional<KeptState>& kept);

}  // namespace psring::worker
