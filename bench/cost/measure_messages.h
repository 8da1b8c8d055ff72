#pragma once

#include <psring/bench/cost/measure.h>

namespace psring::bench {

/// Measures messages between two threads with the transports of jobs: `hop.WAY` and `work.WAY` by bytes (fit.h).
/// `each`: the time for a size and way. `only`: the ways to measure; all if it is empty. Throws the transports' errors.
void measure_messages(Nanoseconds each, Measured& into, const std::set<std::string>& only = {});

/// Returns by how much a step takes longer while other threads exchange messages over TCP as fast as they can.
double measure_slowdown(const worker::Model& model, std::size_t batch);

}  // namespace psring::bench
