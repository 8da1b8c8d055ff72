#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/worker/exchange/mesh/shared_tensors.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/model.h>
#include <psring/worker/registries.h>

namespace psring::bench {

/// A layer's times in a micro-batch, the mean over those of a step, and the unit that holds its tensors
/// (worker::kNoUnit: it has none).
struct LayerTime {
  std::size_t unit = worker::kNoUnit;
  double forward_s = 0;
  double backward_s = 0;
  /// Bytes of the vectors that the layer sums over its tensor group after its passes, one after the other.
  std::vector<double> forward_sums = {};
  std::vector<double> backward_sums = {};
};

/// The work of one worker's step: its layers in forward order, and the layout that cuts their parameters. In a mesh,
/// the layers are those of one stage, and each of them is one part of a whole layer.
struct Workload {
  std::shared_ptr<const worker::Model> stage = nullptr;     ///< shared by copies of the workload
  std::shared_ptr<const worker::FlatModel> flat = nullptr;  ///< the same
  bool tokens = false;                                      ///< the model reads text
  std::size_t rows_per_sample = 1;
  std::vector<LayerTime> layers;
  Layout layout;
  std::vector<Range> unit_layers;      ///< by unit: from its first layer to its last, as forward acquires and releases
  std::vector<Range> backward_layers;  ///< by unit: empty if backward does not need the unit
  std::size_t first_trained_layer = 0;
  std::size_t micro_batches = 1;
  /// Bytes that pass between a stage and its neighbours for a micro-batch, the mean over those of a step; 0: there
  /// is no such message.
  double input_bytes = 0;  ///< activations of the stage before
  double input_gradient_bytes = 0;
  double output_bytes = 0;
  double output_gradient_bytes = 0;
  std::vector<double> loss_sums = {};  ///< bytes of the vectors that the loss sums over the tensor group, in turn
  std::vector<worker::SharedTensor> shared = {};  ///< each with a list of stages of its own
  std::vector<worker::SharingStages> sharing = {};
  std::vector<RowTraffic> rows = {};  ///< by table; empty: no server has rows

  /// Time of all passes of a step.
  double compute_s() const;
};

/// A pass of a layer, forward or backward: what its time depends on.
struct LayerPass {
  std::string kind;  ///< the layer's class: "Linear", "AttentionHalf"
  bool backward = false;
  double flops = 0;
  double elements = 0;  ///< of input, output and parameters
  DType type = DType::f32;

  /// The name of the pass's line in a fit: "compute.Linear.forward.f32".
  std::string line() const;
};

/// The time of a layer's pass.
using PassTime = std::function<double(const LayerPass& pass)>;

/// The passes of a layer, forward and backward. `shapes`: worker::activation_shapes().
std::pair<LayerPass, LayerPass> passes_of(const worker::Model& model, std::size_t layer,
                                          std::span<const worker::Shape> shapes, const worker::Wanted& wanted,
                                          DType type);

/// Describes the step of one worker of each stage of a job, without data and without memory for parameters: one
/// description if there is no pipeline. Of the workers that divide a layer, the last one has the largest part.
/// `owners`: the processes that cut each unit. `rows`: Prediction::rows of the job. Throws usage, naming the flag; data
/// if no host can hold the model.
std::vector<Workload> make_workloads(const JobOptions& job, const worker::Registries& registries, std::size_t owners,
                                     const PassTime& time, std::span<const RowTraffic> rows = {});

}  // namespace psring::bench
