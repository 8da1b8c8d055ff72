#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <psring/common/base/events/event_format.h>

namespace psring {

/// The fields that the records of a part share.
struct RecordedPart {
  EventOrigin origin;
  std::uint64_t stream = 0;   ///< marks the recorder: a process that was started again has another stream
  Moment base;                ///< on the process's own clock, as all times of the part; add origin.offset
  std::uint64_t dropped = 0;  ///< number of events between the part before and this part
};

/// The line of source that emitted an event; line 0: unknown.
struct RecordedSource {
  std::string_view file;
  std::string_view function;
  std::uint64_t line = 0;
};

/// Receives recorded events. `Event::source` is empty, because a program cannot make a source_location of a text.
class RecordedEvents {
 public:
  virtual ~RecordedEvents() = default;
  virtual void on_part(const RecordedPart& /*part*/) {}
  /// Texts of the event and its source are valid during the call.
  virtual void on_event(const RecordedPart& part, const Event& event, const RecordedSource& source) = 0;
};

/// Reads a file of recorded events, in the order in which they were written, and keeps one part in memory at a time.
/// Throws data, naming the file and the byte, if the file is cut or damaged, or of another version.
void read_events(const std::string& path, RecordedEvents& into);

}  // namespace psring
