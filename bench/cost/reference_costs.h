#pragma once

#include <psring/bench/cost/fit.h>

namespace psring::bench {

/// The costs of messages, sums and updates that `psring fit` measured on the reference machine: predictions use them if
/// no fit is given. It has no times of layers. `processor` and `processors` name the machine.
const Fit& reference_fit();

}  // namespace psring::bench
