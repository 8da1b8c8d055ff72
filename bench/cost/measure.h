#pragma once

#include <functional>
#include <string>
#include <vector>

#include <psring/bench/cost/fit.h>
#include <psring/common/base/clock.h>
#include <psring/worker/model/model.h>

namespace psring::bench {

/// The median time of a call, over calls that take at least `at_least` together.
double median_seconds(const std::function<void()>& call, Nanoseconds at_least);

/// Measurements by the name of their line.
using Measured = std::map<std::string, std::vector<TimedSize>>;

/// Measures each layer's forward and backward pass on one thread, and the loss.
void measure_layers(const worker::Model& model, std::size_t batch, Measured& into);
/// Measures the sum of gradients and an update, as a server and a worker do them, by bytes read and written.
void measure_updates(Measured& into);
/// Measures copies of memory, by bytes.
void measure_copies(Measured& into);

}  // namespace psring::bench
