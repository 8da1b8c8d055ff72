#pragma once

#include <psring/common/base/trace.h>
#include <psring/ring/request.h>
#include <psring/ring/work.h>

namespace psring::ring {

/// Starts a flight in the trace, named after the operation and its bytes: "all_reduce 1048576 bytes".
Trace::Flight begin_flight(Trace& trace, const Request& request);

/// The same operation; its flight ends once this rank knows that the operation is complete.
Work traced(Work work, Trace::Flight flight);

}  // namespace psring::ring
