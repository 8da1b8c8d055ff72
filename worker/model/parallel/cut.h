#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/common/proc/job.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// Returns the layers at which a stage of a pipeline may begin, ascending; the first is 0. All others have parameters,
/// and only one activation passes from the layers before to the layers from there on: the output of the layer before.
std::vector<std::size_t> stage_begins(const Model& model);

/// Cuts a model's layers into the stages of a pipeline: consecutive ranges that cover all layers. The costliest stage
/// costs as little as possible; the cost of a layer is its floating-point operations of forward and backward. Of equal
/// cuts, earlier stages have fewer layers. Throws usage if the model cannot be cut into as many stages.
std::vector<Range> cut_by_cost(const Model& model, std::size_t stages);

/// Cuts the layers as --stages says: `0-2,3-5` are the layers of each stage. They count layers with parameters, from 0;
/// a layer without parameters belongs to the layer before it. Throws usage if the text has another form, if stages are
/// missing, if they leave layers out or overlap, and if a stage may not begin there.
std::vector<Range> cut_as_listed(const Model& model, std::size_t stages, const std::string& text);

/// Returns the stages of a job: all layers are one stage without --pipeline; --stages lists them, or cut_by_cost does.
std::vector<Range> stages_of_job(const JobOptions& job, const Model& model);

/// Returns, by the name of each of the model's parameters and buffers, the stages that hold it, ascending.
std::map<std::string, std::vector<std::size_t>> stages_of_tensors(const Model& model, std::span<const Range> stages);

/// Returns one stage of a model: its layers, and the loss if it is the last stage. The figures that describe the data
/// stay the figures of the whole model.
Model take_stage(Model model, Range layers);

}  // namespace psring::worker
