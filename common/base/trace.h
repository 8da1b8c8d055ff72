#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/events.h>

namespace psring {

/// A process's events in the Chrome trace format (opens in Perfetto). Slices name unit, layer, peer, step and bytes;
/// an arrow leads from the slice in which a frame was sent to the slice that began after it arrived.
class Trace final : public EventListener {
 public:
  void on_event(const Event& event) override;

  /// Returns the events as a comma-separated list of JSON objects ("" if there are none), and forgets them. `process`
  /// is the name of this process, as its peers call it; `pid` its number in the trace. `offset` is added to all times:
  /// the job's clock minus this process's. `epoch`: counts the times that the job has regrouped, as frames are then
  /// numbered from 0 again.
  std::string take_json(std::string_view process, int pid, Nanoseconds offset, std::uint64_t epoch = 0);

 private:
  std::vector<Event> events_;
  std::vector<std::string> units_;  ///< names
};

}  // namespace psring
