#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <psring/common/base/events/event_reader.h>

namespace psring::view {

/// The folder of recorded events in a run folder.
inline constexpr const char* kEventsFolder = "events";

/// An event as the Chrome trace format has it. Times are on the clock of all processes.
struct TraceEvent {
  char phase = 0;  ///< X slice, b and e transfer, s and f frame, i instant, C counter, M name of a process or a thread
  std::string name;
  std::string process;
  std::uint64_t number = 0;  ///< of the process in a trace
  int thread = 0;            ///< 1: a GPU's
  Nanoseconds start{0};
  Nanoseconds duration{0};  ///< of a slice
  std::string id;           ///< of a frame or a transfer: equal at both ends
  std::uint64_t step = 0;
  std::string unit;  ///< "" if the event is of no unit
  std::string peer;  ///< "" if the event is of no peer
  std::uint64_t bytes = 0;
  std::string more;              ///< further arguments, as members of a JSON object, each behind a comma
  std::uint64_t parameters = 0;  ///< of a counter: bytes of whole units
  std::uint64_t gradients = 0;

  double at() const { return seconds(start); }
  double end() const { return seconds(start + duration); }
};

/// Chooses events by their phase and time, before their texts are made.
using TraceFilter = std::function<bool(char phase, double at)>;

/// Translates recorded events into those of a trace: slices name unit, layer, peer, step and bytes; an arrow leads from
/// the slice in which a frame was sent to the slice that began after it arrived.
class TraceTranslator final : public RecordedEvents {
 public:
  using Body = std::function<void(TraceEvent&&)>;
  TraceTranslator(TraceFilter wanted, Body body) : wanted_(std::move(wanted)), body_(std::move(body)) {}

  void on_part(const RecordedPart& part) override;
  void on_event(const RecordedPart& part, const Event& event, const RecordedSource& source) override;

 private:
  struct Stream {
    std::vector<std::string> units;  ///< names
    bool has_device = false;
    /// Bytes of the whole units in memory. Where not every step is recorded, a unit may come or go unseen.
    std::map<std::uint32_t, std::uint64_t> parameters, gradients;
  };
  class Writer;

  const TraceFilter wanted_;
  const Body body_;
  std::map<std::pair<std::string, std::uint64_t>, Stream> streams_;  ///< by process
  Stream* stream_ = nullptr;                                         ///< of the present part
  std::uint64_t transfers_ = 0;                                      ///< number of transfers so far
};

/// Calls `body` with each event that `wanted` chooses of the recorded events in `folder`, process by process; a missing
/// folder has none. Throws data, naming the file and the byte, if a file is damaged.
void for_each_trace_event(const std::filesystem::path& folder, const TraceFilter& wanted,
                          const TraceTranslator::Body& body);

}  // namespace psring::view
