// Recorded events: the input is a file, or the body of a part with a right head.
#include <vector>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/event_reader.h>
#include <psring/tests/fuzz/files.h>

using namespace psring;

namespace {

std::vector<std::byte> part_of(std::span<const std::byte> body) {
  std::vector<std::byte> bytes(kPartHeadBytes);
  const auto size = static_cast<std::uint32_t>(body.size());
  const std::uint32_t check = crc32c(body);
  std::memcpy(bytes.data(), kEventMagic.data(), 4);
  bytes[4] = std::byte{kEventVersion};
  std::memcpy(bytes.data() + 5, &size, 4);
  std::memcpy(bytes.data() + 9, &check, 4);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

/// Requires of each event what a view relies on.
class Bounds final : public RecordedEvents {
 public:
  void on_event(const RecordedPart& part, const Event& event, const RecordedSource& source) override {
    const auto bounded = [](Nanoseconds time) { return time.count() >= -2 * kMostTime && time.count() <= kMostTime; };
    fuzz::require(bounded(event.start.time_since_epoch()) && bounded(part.origin.offset), "a time that is bounded");
    fuzz::require(event.duration.count() >= 0 && event.duration.count() <= kMostTime, "a duration that is bounded");
    fuzz::require(source.file.size() <= kMostTextBytes, "a text that is bounded");
    if (const auto* transfer = std::get_if<Transfer>(&event.what))
      fuzz::require(transfer->units.begin <= transfer->units.end, "a range");
    if (const auto* frame = std::get_if<FrameMoved>(&event.what))
      fuzz::require(frame->range.begin <= frame->range.end, "a range");
  }
};

}  // namespace

void psring::fuzz::run(Input in) {
  const bool whole = (in.byte() & 1) != 0;
  const auto rest = in.rest();
  const MemoryFile file(whole ? std::vector<std::byte>(rest.begin(), rest.end()) : part_of(rest));
  refuses(ErrorKind::data, [&] {
    Bounds bounds;
    read_events(file.path(), bounds);
  });
}
