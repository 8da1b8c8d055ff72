#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <psring/common/base/events.h>

namespace psring {

/// An event in one cache line, as a recorder keeps it until it is written.
struct alignas(64) PackedEvent {
  /// The fields that an event has in common with its repetitions. All bytes are fields, and 0 where the kind has none.
  struct Pattern {
    std::uintptr_t source = 0;  ///< a source_location is a pointer to constant data; see the static_assert in events.h
    const char* name = nullptr;
    std::uint32_t begin = 0, size = 0;  ///< of a range; Activity: layer, 0
    std::uint32_t bytes = 0;
    std::uint32_t unit = 0;
    std::uint32_t rank = 0;
    std::uint16_t name_size = 0;
    std::uint8_t role = 0;   ///< its number in a list of packed_event.cpp
    std::uint8_t state = 0;  ///< the kind, and flags

    bool operator==(const Pattern& other) const { return std::memcmp(this, &other, sizeof other) == 0; }
  };
  static constexpr std::uint8_t kKind = 0x0f;
  static constexpr std::uint8_t kFlag = 0x10;   ///< `arrived`, `here`, or `averaged`
  static constexpr std::uint8_t kFlag2 = 0x20;  ///< Presence: of gradients
  static constexpr std::uint8_t kWhole = 0x40;  ///< EventPacker has the event: its kind has values, or it is large
  static constexpr std::uint8_t kLarge = 0x80;  ///< a field does not fit: the pattern is that of no other event

  Pattern pattern;
  std::int64_t start = 0;
  std::uint64_t count = 0;  ///< the duration; FrameMoved: the frame's number; kWhole: the event's place
  std::uint32_t step = 0;
  std::uint32_t version = 0;  ///< of a frame

  std::size_t kind() const { return pattern.state & kKind; }
  bool is_whole() const { return (pattern.state & kWhole) != 0; }
  bool is_large() const { return (pattern.state & kLarge) != 0; }
};
static_assert(sizeof(PackedEvent) == 64 && std::has_unique_object_representations_v<PackedEvent>);

/// Packs events, and keeps whole those that do not fit. The names and roles of events have to be static; those of a
/// device's work are copied.
class EventPacker {
 public:
  /// Packs the event, or returns false if `keep` has to do it.
  static bool pack(const Event& event, PackedEvent& into);
  template <FlatDetail What>
  static bool pack(const EventHead& head, const What& what, PackedEvent& into);
  /// Packs an event of any kind. Keeps the event whole if it has values, or a field that does not fit.
  void keep(const Event& event, PackedEvent& into);
  /// Returns the event. REQUIRES: one that is kept whole was kept after the last `clear`.
  Event unpack(const PackedEvent& packed) const;
  /// Returns the event if it is kept whole, else null. Valid until the next `keep` or `clear`.
  const Event* whole(const PackedEvent& packed) const { return packed.is_whole() ? &whole_[packed.count] : nullptr; }
  /// The number of events that are kept whole.
  std::size_t kept() const { return whole_.size(); }
  /// Forgets the events that are kept whole, but the first `count`.
  void clear(std::size_t count = 0) { whole_.resize(std::min(count, whole_.size())); }

 private:
  std::set<std::string, std::less<>> names_;  ///< of the work of devices
  std::vector<Event> whole_;
};

}  // namespace psring
