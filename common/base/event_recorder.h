#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <psring/common/base/event_format.h>
#include <psring/common/base/events.h>

namespace psring {

/// Encodes the events of a role as they come, into parts that can be read by themselves. Safe for use from several
/// threads.
class EventRecorder final : public EventListener {
 public:
  using Bytes = std::vector<std::byte>;

  static constexpr std::size_t kPartBytes = std::size_t{256} << 10;  ///< a part ends when it has grown to this size
  /// The most bytes that are kept until `take`. Further events are dropped, and counted in the part after them.
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  void on_event(const Event& event) override;

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
  /// An event's line of source and its texts. Events repeat from step to step with the same texts.
  struct TextKey {
    std::uintptr_t source = 0;
    std::string_view name;  ///< static, so that its address identifies it
    std::array<char, 23> text = {};
    std::uint8_t text_size = 0;

    bool holds(const TextKey& other, std::string_view other_text) const {
      return source == other.source && name.data() == other.name.data() && name.size() == other.name.size() &&
             std::string_view(text.data(), text_size) == other_text;
    }
    void set_text(std::string_view value) {
      value.copy(text.data(), text.size());
      text_size = static_cast<std::uint8_t>(value.size());
    }
  };
  struct Numbers {
    std::uint32_t source = 0, name = 0, text = 0;  ///< in the part; 0: not known yet
  };
  /// The numbers of an event's texts. A lookup touches one cache line, where the hash tables behind it touch several,
  /// which are cold each time that the program comes to emit an event.
  struct alignas(64) RecentTexts {
    TextKey key;
    Numbers numbers;
  };
  class Writer;

  void begin_part(Moment base);
  void end_part();

  std::mutex mutex_;  ///< guards all members
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
  std::array<RecentTexts, 128> recent_texts_ = {};
  std::int64_t end_ = 0;    ///< of the last record
  std::uint64_t step_ = 0;  ///< of the last record
};

}  // namespace psring
