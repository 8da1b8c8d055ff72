#pragma once

#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/values.h>
#include <psring/worker/registries.h>

namespace psring::cli {

/// Refuses options that contradict each other, in a job whose values are each right and mean something to its
/// strategy. Throws usage: a line that names both options.
void refuse_pairs(const JobOptions& job, const options::Given& given, const worker::StrategyKind& kind);

/// Throws usage if --tensor times --pipeline does not divide the workers.
void check_mesh(const JobOptions& job);

/// Returns whether the job has a process that the fault hits.
bool hits_somebody(const Fault& fault, const JobOptions& job);

}  // namespace psring::cli
