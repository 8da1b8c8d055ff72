#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/text/json.h>
#include <psring/view/step/simulated_job.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

struct PlayOptions {
  double flops_per_second = 1e9;         ///< of each worker
  double server_bytes_per_second = 1e9;  ///< how fast each server aggregates and updates
  /// The step at which each worker and each server is killed, in a run of its own; none: no such runs.
  std::optional<std::uint32_t> kills = {};
};

/// Throws usage, naming the option, if the simulator cannot play the job.
void check_playable(const JobOptions& job, const PlayOptions& options);

/// Runs a job in the simulator, and returns its scene, as docs/scene.md describes it. `label` names the scene; the link
/// is the job's --link. A job that fails has a scene with its error. Throws usage if the job ends before
/// `options.kills`. REQUIRES: check_playable.
Json play(const std::string& label, const JobOptions& job, const worker::StrategyKind& kind, const PlayOptions& options,
          const JobNames& names);

}  // namespace psring::view
