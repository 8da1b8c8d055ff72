#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <psring/common/base/events/event_format.h>
#include <psring/common/base/events/events.h>
#include <psring/common/base/system/mutex.h>

namespace psring {

/// Keeps the events of a role, and makes parts of them that can be read by themselves. Safe for use from several
/// threads. The thread that takes the parts deflates them; a thread that emits an event only fills in a record.
class EventRecorder final : public EventListener {
 public:
  using Bytes = std::vector<std::byte>;

  /// The most bytes that are kept: of records, and again of parts that wait for `take`. Further events are dropped, and
  /// counted in the part after them.
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  void on_event(const Event& event) override;
  /// Takes a detail without an Event. Returns true.
  template <FlatDetail What>
  bool put(const EventHead& head, const What& what);

  /// Deflates each part that gets full, for this time or until a stop is asked for.
  void deflate_for(Nanoseconds time, const std::stop_token& stop);
  /// Returns the parts so far, each complete, and forgets them. `origin`: where all of them were recorded.
  std::vector<Bytes> take(const EventOrigin& origin);

 private:
  /// The records of a part, as they are emitted.
  struct Block {
    std::vector<EventRecord> records;
    std::uint64_t dropped = 0;  ///< number of events between the block before and this block
  };
  class Packing;
  class Texts;

  template <class What>
  void pack(const EventHead& head, const What& what);
  void add(const EventRecord& record, const EventRecord* upper) PSRING_REQUIRES(mutex_);
  /// Deflates the oldest blocks until `left` of them are left.
  void deflate(std::size_t left) PSRING_REQUIRES(deflating_);
  /// Deflates a part of the first records, and returns their number.
  std::size_t deflate_part(std::span<const EventRecord> records, std::uint64_t dropped) PSRING_REQUIRES(deflating_);

  Mutex deflating_;                                         ///< taken before mutex_
  std::uint64_t stream_ PSRING_GUARDED_BY(deflating_) = 0;  ///< marks the recorder: the time of its first event
  std::int64_t end_ PSRING_GUARDED_BY(deflating_) = 0;      ///< of the last record that was deflated
  /// Repeated in each part; its `name` is 0 before the first names.
  EventRecord unit_names_ PSRING_GUARDED_BY(deflating_);

  Mutex mutex_;
  StoppableCondition full_;
  std::deque<Block> blocks_ PSRING_GUARDED_BY(mutex_);
  std::uint64_t dropped_ PSRING_GUARDED_BY(mutex_) = 0;  ///< since the last block
  /// The names of devices' work: records have their addresses.
  std::set<std::string, std::less<>> names_ PSRING_GUARDED_BY(mutex_);
  std::list<UnitNames> units_ PSRING_GUARDED_BY(mutex_);  ///< records have their addresses
  std::vector<Bytes> parts_ PSRING_GUARDED_BY(mutex_);    ///< deflated; the fields of an origin are still missing
  std::size_t parts_bytes_ PSRING_GUARDED_BY(mutex_) = 0;
};

}  // namespace psring
