// Recorded events: the input is a file, or the inflated body of a part.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <zlib.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/events/event_reader.h>
#include <psring/tests/fuzz/files.h>

using namespace psring;

namespace {

/// Makes a part of a body, whose first byte is the size of its texts.
std::vector<std::byte> part_of(std::span<const std::byte> body) {
  EventPartHead head;
  head.text_bytes = body.empty() ? 0 : std::to_integer<std::uint32_t>(body[0]);
  body = body.subspan(std::min<std::size_t>(1, body.size()));
  if (body.size() > head.text_bytes)
    head.records = static_cast<std::uint32_t>((body.size() - head.text_bytes) / sizeof(EventRecord));
  body = body.first(std::min(body.size(), head.text_bytes + head.records * sizeof(EventRecord)));
  uLongf size = compressBound(body.size());
  std::vector<std::byte> bytes(sizeof head + size);
  fuzz::require(compress2(reinterpret_cast<Bytef*>(bytes.data() + sizeof head), &size,
                          reinterpret_cast<const Bytef*>(body.data()), body.size(), 0) == Z_OK,
                "zlib");
  bytes.resize(sizeof head + size);
  head.size = static_cast<std::uint32_t>(size);
  const std::uint32_t check = crc32c(std::as_bytes(std::span(&head, 1)));
  head.check = crc32c(std::span(bytes).subspan(sizeof head), check);
  std::memcpy(bytes.data(), &head, sizeof head);
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
