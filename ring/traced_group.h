#pragma once

#include <memory>

#include <psring/common/base/trace.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// The group, whose operations the trace shows from their call until this rank knows that they are complete: what is
/// asked for with Work::done seldom seems to last longer than it does. The trace must outlive the group.
std::unique_ptr<ProcessGroup> make_traced_group(std::unique_ptr<ProcessGroup> group, Trace& trace);

}  // namespace psring::ring
