#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/proc/job.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/model.h>
#include <psring/worker/registries.h>

namespace psring::bench {

/// A layer's times in one micro-batch, and the unit that holds its tensors (worker::kNoUnit: it has none).
struct LayerTime {
  std::size_t unit = worker::kNoUnit;
  double forward_s = 0;
  double backward_s = 0;
  double flops = 0;  ///< of both passes
};

/// The work of one worker's step: its layers in forward order, and the layout that cuts their parameters.
struct Workload {
  std::string model;
  bool tokens = false;  ///< the model reads text
  std::size_t rows_per_sample = 1;
  std::vector<LayerTime> layers;
  Layout layout;
  std::vector<Range> unit_layers;      ///< by unit: from its first layer to its last, as forward acquires and releases
  std::vector<Range> backward_layers;  ///< by unit: empty if backward does not need the unit
  std::size_t first_trained_layer = 0;
  std::size_t micro_batches = 1;

  /// Time of all passes of a step.
  double compute_s() const;
  double flops() const;  ///< of a step
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

/// The name of a layer's class, without namespaces.
std::string kind_of(const worker::Layer& layer);

/// The elements of a layer's different inputs, of its output and parameters. `shapes`: worker::activation_shapes().
double elements_of(const worker::Model& model, std::size_t layer, std::span<const worker::Shape> shapes);

/// Describes the step of one worker of a job, without its data and without memory for its parameters. `owners`: the
/// processes that cut each unit. Throws usage, naming the flag.
Workload make_workload(const JobOptions& job, const worker::Registries& registries, std::size_t owners,
                       const PassTime& time);

}  // namespace psring::bench
