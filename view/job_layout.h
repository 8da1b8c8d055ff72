#pragma once

#include <optional>

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/job.h>
#include <psring/worker/registries.h>

namespace psring::view {

/// Returns the options of a job, run.json's `job`; nothing if another version of psring wrote them in another form.
std::optional<JobOptions> read_job(const Json& job);

/// Returns the units that a job trains, as its strategy divides them; nothing if this program does not have the job's
/// model or strategy, or if the options do not give the number of owners (--shard-group host).
std::optional<Layout> job_layout(const JobOptions& job, const worker::Registries& registries);

/// Returns the units of the whole model of a job in a mesh, [{name, elements, stages}]: the stages that have layers of
/// the unit, ascending. Null if this program does not have the job's model.
Json mesh_units(const JobOptions& job, const worker::Registries& registries);

}  // namespace psring::view
