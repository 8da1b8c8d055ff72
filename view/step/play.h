#pragma once

#include <string>

#include <psring/common/base/json.h>
#include <psring/view/step/simulated_job.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

/// Throws usage, naming the option, if the simulator cannot play the job.
void check_playable(const JobOptions& job);

/// Runs a job in the simulator, and returns its scene, as docs/scene.md describes it. `label` names the scene; the link
/// is the job's --link, and each worker computes `flops_per_second`. A job that fails has a scene with its error.
/// REQUIRES: check_playable.
Json play(const std::string& label, const JobOptions& job, const worker::StrategyKind& kind, double flops_per_second,
          const JobNames& names);

}  // namespace psring::view
