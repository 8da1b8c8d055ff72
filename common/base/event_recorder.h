#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <psring/common/base/event_format.h>
#include <psring/common/base/events.h>
#include <psring/common/base/packed_event.h>

namespace psring {

/// Encodes the events of a role into parts that can be read by themselves. Safe for use from several threads; fast for
/// the thread that makes the recorder.
class EventRecorder final : public EventListener {
 public:
  using Bytes = std::vector<std::byte>;

  static constexpr std::size_t kPartBytes = std::size_t{256} << 10;  ///< a part ends when it has grown to this size
  /// The most bytes that are kept until `take`. Further events are dropped, and counted in the part after them.
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  void on_event(const Event& event) override;
  /// Takes a detail at less cost, or returns false: then on_event has to take it.
  template <FlatDetail What>
  bool put(const EventHead& head, const What& what) {
    if (owner_ != mark_of_thread()) return false;
    const std::size_t count = staged_count_.load(std::memory_order_relaxed);
    if (!EventPacker::pack(head, what, staged_[count])) return false;
    add_staged(count);
    return true;
  }

  /// Returns the parts so far, each complete, and forgets them. `origin`: where all of them were recorded.
  std::vector<Bytes> take(const EventOrigin& origin);

 private:
  struct Part {
    Bytes records;
    Moment base;
    std::uint64_t dropped = 0;  ///< number of events between the part before and this part
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  /// The common part of events that repeat; see event_format.h.
  struct Pattern {
    PackedEvent::Pattern pattern;
    FrameCounts counts = {};     ///< of the last one
    FrameCounts growth = {};     ///< from the last but one to the last one
    std::uint32_t next = kNone;  ///< the pattern of the record after the last one
  };
  class Writer;

  /// Returns an address that no other thread has. It compares faster than a std::thread::id.
  static const char* mark_of_thread() {
    static thread_local char mark;
    return &mark;
  }
  /// The place `count` of the stage has an event now.
  void add_staged(std::size_t count) {
    staged_count_.store(count + 1, std::memory_order_release);
    if (count + 1 == kStaged) return empty_stage();
    // The next event's place is not in the processor's first-level cache: to fetch it now saves the wait.
    __builtin_prefetch(&staged_[count + 1], 1);
  }
  void write_at_once(const Event& event);
  void empty_stage();
  /// Writes the events that are staged and not written yet.
  void write_staged();
  void write(const PackedEvent& event);
  void begin_part(Moment base);
  void end_part();

  /// The number of events that wait, at most, until they are written together. The code and tables for that would be
  /// out of the caches each time, because the program computes between two events.
  static constexpr std::size_t kStaged = 128;

  // The thread that makes the recorder owns the stage, where it puts its events without a lock: nearly all are its own.
  // Events of other threads are written at once.
  const char* const owner_ = mark_of_thread();
  const std::unique_ptr<PackedEvent[]> staged_ = std::make_unique<PackedEvent[]>(kStaged);
  std::atomic<std::size_t> staged_count_ = 0;  ///< of the events that are complete; changed by the owner

  std::mutex mutex_;         ///< guards all following members
  std::size_t written_ = 0;  ///< number of staged events that have been written
  EventPacker packer_;
  std::vector<Part> parts_;
  std::size_t waiting_bytes_ = 0;  ///< of parts_
  std::uint64_t dropped_ = 0;      ///< since the last part
  std::uint64_t stream_ = 0;       ///< marks the recorder: the time of its first event
  UnitNames units_;                ///< repeated in each part

  Part part_;             ///< the part that grows
  std::size_t size_ = 0;  ///< number of bytes of part_.records in use
  bool open_ = false;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> texts_;
  std::unordered_map<std::uintptr_t, std::uint32_t> sources_;
  std::vector<Pattern> patterns_;
  std::unordered_map<std::size_t, std::uint32_t> pattern_numbers_;  ///< by hash: the latest pattern that has it
  static constexpr unsigned kRecentBits = 10;
  /// The pattern that was last found with a hash of these upper bits: a table that fits into the first-level cache.
  std::vector<std::uint32_t> recent_ = std::vector<std::uint32_t>(std::size_t{1} << kRecentBits);
  std::uint32_t last_ = kNone;  ///< pattern of the last record
  std::int64_t end_ = 0;        ///< of the last record
  std::uint64_t step_ = 0;      ///< of the last record
};

}  // namespace psring
