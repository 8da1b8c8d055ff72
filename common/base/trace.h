#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/events.h>

namespace psring {

/// A process's events in the Chrome trace format (opens in Perfetto). Slices name unit, layer, peer, step and bytes;
/// an arrow leads from the slice in which a frame was sent to the slice that began after it arrived. Safe for use from
/// several threads.
class Trace final : public EventListener {
 public:
  /// The most events that the trace keeps. Further events are dropped, and counted in the trace, until `take_json`.
  static constexpr std::size_t kMostEvents = std::size_t{1} << 18;

  void on_event(const Event& event) override;

  /// Returns the events as a comma-separated list of JSON objects ("" if there are none), and forgets them; later calls
  /// return later parts of one trace. `process`
  /// is the name of this process, as its peers call it; `pid` its number in the trace. `offset` is added to all times:
  /// the job's clock minus this process's. `epoch`: counts the times that the job has regrouped, as frames are then
  /// numbered from 0 again.
  std::string take_json(std::string_view process, int pid, Nanoseconds offset, std::uint64_t epoch = 0);

  /// State that one part of the trace passes on to the next.
  struct Carried {
    std::vector<std::string> units;  ///< names
    std::size_t transfers = 0;       ///< number of transfers so far
    std::uint64_t parameters = 0;    ///< bytes of the whole units in memory
    std::uint64_t gradients = 0;
  };

 private:
  std::mutex mutex_;
  std::vector<Event> events_;  ///< guarded by mutex_
  std::size_t dropped_ = 0;    ///< guarded by mutex_; events since the last call of take_json
  Carried carried_;            ///< used by take_json, which one thread at a time calls
};

}  // namespace psring
