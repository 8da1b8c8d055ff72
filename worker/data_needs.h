#pragma once

#include <psring/common/proc/job.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// The requirements of a job's model on its data.
DataNeeds needs_of(const Model& model, const JobOptions& job);

}  // namespace psring::worker
