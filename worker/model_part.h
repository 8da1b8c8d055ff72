#pragma once

#include <cstddef>
#include <vector>

#include <psring/worker/exchange/mesh/stage_links.h>
#include <psring/worker/exchange/plan.h>
#include <psring/worker/model/network.h>
#include <psring/worker/model/parallel/schedule.h>
#include <psring/worker/train_setup.h>

namespace psring::worker {

// How a worker computes its part of the model, and the memory that this takes, as the setup that has become the part
// (TrainSetup::become) says.

/// The order of the passes of a step.
StagePlan plan_of_stage(const TrainSetup& setup);
std::vector<Pass> passes_of(const StagePlan& plan);
/// By unit: whether its gradient waits for the gradients of other stages.
std::vector<bool> held_back(const TrainSetup& setup);

/// Without Options::computed and Options::arena.
Network::Options options_of_network(const TrainSetup& setup);
StageLinks::Sizes sizes_of_stage(const TrainSetup& setup);

/// The memory in which the loss exchanges numbers with the tensor group.
std::size_t loss_bytes(const TrainSetup& setup);

/// The room that the buffers of a pipeline's stage take in the memory that its neighbours read.
std::size_t pipeline_bytes(const TrainSetup& setup);
/// The room that activations and the loss's numbers take there, if the layers are divided: a tensor group sums them in
/// place.
std::size_t tensor_bytes(const TrainSetup& setup);

}  // namespace psring::worker
