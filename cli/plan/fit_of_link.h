#pragma once

#include <psring/bench/predict/fit.h>
#include <psring/cli/doctor/doctor_judge.h>

namespace psring::cli {

/// Returns a fit without costs: this program and this host.
bench::Fit fit_of_program();
/// Adds the network to another host: `link.peer`, the time of a message by bytes, and `rate.peer`, the time of a byte
/// of many messages in flight, in the slower direction.
void add_link(const LinkFigures& figures, bench::Fit& fit);

}  // namespace psring::cli
