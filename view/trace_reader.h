#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace psring::view {

/// An event of trace.json. Times are seconds on the clock of all processes.
struct TraceEvent {
  std::string name;
  std::string process;
  std::string unit;  ///< "" if the event is of no unit
  std::string id;    ///< of a frame or a transfer: equal at both ends
  char phase = 0;    ///< X slice, b and e transfer, s and f frame, C counter
  int thread = 0;    ///< 1: a GPU's
  double at = 0;
  double duration = 0;  ///< of a slice
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  std::uint64_t parameters = 0;  ///< of a counter: bytes of whole units
  std::uint64_t gradients = 0;
};

/// Chooses events by their phase and time, before they are read in full.
using EventFilter = std::function<bool(char phase, double at)>;

/// Calls `body` with each event of a trace that `wanted` chooses, in the order of the file; a missing file has none.
/// Reads a line at a time, as psring writes an event a line. Throws data, naming the file and the line, if a line is
/// not one that psring writes.
void for_each_event(const std::filesystem::path& file, const EventFilter& wanted,
                    const std::function<void(const TraceEvent&)>& body);

}  // namespace psring::view
