#pragma once

#include <psring/common/base/events.h>
#include <psring/ring/request.h>
#include <psring/ring/work.h>

namespace psring::ring {

/// Starts a flight, named after the operation, with its bytes. `source`: the caller's line.
Events::Flight begin_flight(Events& events, const Request& request, Events::Source source);

/// The same operation; its flight ends once this rank knows that the operation is complete.
Work reported(Work work, Events::Flight flight);

}  // namespace psring::ring
