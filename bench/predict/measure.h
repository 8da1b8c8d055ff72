#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <psring/bench/predict/fit.h>
#include <psring/bench/predict/workload.h>
#include <psring/common/base/clock.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/model/model.h>

namespace psring::bench {

/// The median time of a call, over calls that take at least `at_least` together.
double median_seconds(const std::function<void()>& call, Nanoseconds at_least);

/// Measurements by the name of their line.
using Measured = std::map<std::string, std::vector<TimedSize>>;

/// Measures each layer's forward and backward pass, with values of this type.
void measure_layers(const worker::Model& model, std::size_t batch, DType type, Measured& into, std::size_t threads = 1);
/// Measures a server's mean of several gradients, by the elements of all gradients.
void measure_aggregation(Measured& into);
/// Measures an update by each registered rule with its default options, or only by the rules of these lines
/// (update_line), as servers and workers do it, by elements. Rules that share a line are measured once.
void measure_updates(const optim::OptimizerRegistry& optimizers, Measured& into,
                     const std::set<std::string>& only = {});
/// Measures copies of memory, by bytes.
void measure_copies(Measured& into);
/// Fits a line to each of the measurements.
std::map<std::string, CostLine> fit_lines(const Measured& measured);

/// The relative deviation of a step's time, from the quartiles of many steps: a step that another program interrupted
/// for long does not count.
double measure_deviation(const worker::Model& model, std::size_t batch);
/// The time by which a sleep ends too late.
double measure_sleep();

/// Measures messages between two threads with the transports of jobs: `hop.WAY` and `work.WAY` by bytes (fit.h).
/// `each`: the time for a size and way. `only`: the ways to measure; all if it is empty. Throws the transports' errors.
void measure_messages(Nanoseconds each, Measured& into, const std::set<std::string>& only = {});

/// Returns by how much a step takes longer while other threads exchange messages over TCP as fast as they can.
double measure_slowdown(const worker::Model& model, std::size_t batch);

/// The times of the passes of one model's layers, as this machine computes them while it does nothing else.
class MeasuredPasses {
 public:
  /// Measures steps of the whole model in a micro-batch of this size, on `threads` threads. REQUIRES: the host has the
  /// memory for the model.
  MeasuredPasses(const worker::Model& model, std::size_t batch, DType type, std::size_t threads);

  /// Returns the time of a pass: of the measured pass of the same kind and size. If none has that size, because a layer
  /// is divided or a micro-batch has one sample more, the nearest one is scaled by FLOPs, or by elements if it has
  /// none. Throws usage if no layer of that kind was measured.
  double seconds(const LayerPass& pass) const;
  /// The time of both passes of all layers.
  double step_s() const;

 private:
  Measured passes_;
};

}  // namespace psring::bench
