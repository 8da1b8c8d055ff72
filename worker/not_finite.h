#pragma once

#include <psring/worker/exchange/plan.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/network.h>

namespace psring::worker {

/// Throws data for a loss that is not finite: names the step, the first unit whose output is not finite, and says
/// whether the unit's parameters are finite. REQUIRES: the network has just gone forward.
[[noreturn]] void fail_not_finite(Step step, const Plan& plan, const World& world, const FlatModel& flat,
                                  const Network& network);

}  // namespace psring::worker
