#pragma once

#include <filesystem>
#include <string>

#include <psring/view/trace_events.h>

namespace psring::view {

/// Returns the event as a JSON object of the Chrome trace format.
std::string to_json(const TraceEvent& event);

/// Writes trace.json (Chrome trace, opens in Perfetto) into the run folder, from the run's recorded events; returns the
/// file's path. Throws data, naming the file, if the run has no recorded events or they are damaged.
std::filesystem::path write_trace(const std::filesystem::path& run);

}  // namespace psring::view
