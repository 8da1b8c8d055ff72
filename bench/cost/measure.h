#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <psring/bench/cost/fit.h>
#include <psring/common/base/clock.h>
#include <psring/optim/optimizers.h>
#include <psring/worker/model/model.h>

namespace psring::bench {

/// The median of some values. REQUIRES: one value at least.
double median_of(std::vector<double> values);
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

}  // namespace psring::bench
