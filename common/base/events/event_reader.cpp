#include <algorithm>
#include <bit>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include <zlib.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/events/event_reader.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>

namespace psring {
namespace {

/// A part of a file, which is inflated and read record by record. The line of an error names the file and the byte.
class Part {
 public:
  Part(const InputFile& file, std::uint64_t offset) : file_(file), offset_(offset) {
    read_head(file.size_bytes() - offset);
    inflate();
    for (std::string_view rest(bytes_.data(), head_.text_bytes); !rest.empty();) {
      texts_.push_back(rest.substr(0, rest.find('\0')));
      rest.remove_prefix(texts_.back().size() + 1);
      require(texts_.back().size() <= kMostTextBytes, "a text that is too long");
    }
  }

  std::size_t size_bytes() const { return sizeof head_ + head_.size; }

  void read(RecordedEvents& into) {
    const std::string_view process(head_.process.data(), head_.process.size());
    const RecordedPart part{{std::string(process.substr(0, process.find('\0'))), head_.number, head_.epoch,
                             Nanoseconds(time(head_.offset))},
                            head_.stream,
                            Moment(Nanoseconds(time(head_.base))),
                            head_.dropped};
    into.on_part(part);
    auto end = static_cast<std::uint64_t>(head_.base);
    for (std::size_t i = 0; i < head_.records; ++i) {
      const auto& bytes = std::as_writable_bytes(std::span(&record_, 1));
      for (std::size_t at = 0; at < bytes.size(); ++at)
        bytes[at] = std::byte(bytes_[head_.text_bytes + at * head_.records + i]);
      if (kind() == EventRecord::kUpper) {
        upper_ = record_;
        continue;
      }
      end += static_cast<std::uint64_t>(record_.end);
      into.on_event(part, event(Nanoseconds(time(static_cast<std::int64_t>(end)))), source());
      upper_ = {};
    }
  }

  // The fields of the present record, for visit_fields.
  void names(UnitNames& what) const {
    require(record_.size <= kMostNames, "too many names of units");
    for (std::uint64_t i = 0; i < record_.size; ++i) what.names.emplace_back(text(record_.name + i));
  }
  void name(auto& name) const { name = text(record_.name); }
  void peer(PeerName& peer) const {
    require(record_.role < kEventRoles.size(), "a role that is unknown");
    peer = {kEventRoles[record_.role], record_.rank};
  }
  template <class Value>
  void flag(std::uint8_t flag, Value& value) const {
    value = static_cast<Value>((record_.state & flag) != 0);
  }
  void number(std::uint64_t EventRecord::*field, std::uint64_t& value) const { value = record_.*field; }
  void number(std::uint32_t EventRecord::*field, std::uint32_t& value) const { value = record_.*field; }
  void number(std::uint32_t EventRecord::*field, std::uint64_t& value) const {
    value = record_.*field | std::uint64_t{upper_.*field} << 32;
  }
  void real(std::uint64_t EventRecord::*field, double& value) const { value = std::bit_cast<double>(record_.*field); }
  void duration(auto EventRecord::*field, Nanoseconds& value) const {
    std::uint64_t count = 0;
    number(field, count);
    require(count <= std::uint64_t{kMostTime}, "a time out of bounds");
    value = Nanoseconds(count);
  }
  void range(Range& range) const {
    number(&EventRecord::begin, range.begin);
    number(&EventRecord::size, range.end);
    require(range.end <= UINT64_MAX - range.begin, "a range beyond 64 bits");
    range.end += range.begin;
  }

 private:
  template <class... Args>
  void require_at(std::uint64_t at, bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (holds) return;
    fail(ErrorKind::data, "{}: byte {}: {}", file_.path(), offset_ + at,
         fmt::format(format, std::forward<Args>(args)...));
  }
  void require(bool holds, const char* what) const { require_at(sizeof head_, holds, "{}", what); }

  /// `left`: bytes from the part to the file's end.
  void read_head(std::uint64_t left) {
    const auto bytes = std::as_writable_bytes(std::span(&head_, 1));
    file_.read(offset_, bytes.first(std::min<std::uint64_t>(left, bytes.size())));
    const unsigned version = head_.version & 0xff;
    require_at(0, left > 4, "the file is cut: {} bytes of a part's head", left);
    require_at(0, head_.magic == EventPartHead{}.magic, "no part of recorded events begins here");
    require_at(4, version == kEventVersion, "events of version {}, expected {}", version, kEventVersion);
    require_at(0, left >= bytes.size(), "the file is cut: {} bytes of a part's head", left);
    require_at(8, head_.size <= left - bytes.size(), "the file is cut: {} of {} bytes of a part", left - bytes.size(),
               head_.size);
    require_at(12, head_.text_bytes > 0 && head_.text_bytes <= kMostTextsBytes && head_.records <= kPartRecords,
               "a part of {} bytes of texts and {} records, expected 1 to {} and at most {}", head_.text_bytes,
               head_.records, kMostTextsBytes, kPartRecords);
  }

  void inflate() {
    std::vector<std::byte> deflated(head_.size);
    file_.read(offset_ + sizeof head_, deflated);
    const std::uint32_t expected = std::exchange(head_.check, 0);
    require_at(0, crc32c(deflated, crc32c(std::as_bytes(std::span(&head_, 1)))) == expected,
               "a part whose checksum is wrong");
    bytes_.resize(head_.text_bytes + head_.records * sizeof(EventRecord));
    uLongf size = bytes_.size();
    const int status = uncompress(reinterpret_cast<Bytef*>(bytes_.data()), &size,
                                  reinterpret_cast<const Bytef*>(deflated.data()), deflated.size());
    require(status == Z_OK && size == bytes_.size() && bytes_[head_.text_bytes - 1] == '\0',
            "a part that zlib refuses");
  }

  std::size_t kind() const { return record_.state & EventRecord::kKind; }
  std::int64_t time(std::int64_t time) const {
    require(time >= -kMostTime && time <= kMostTime, "a time out of bounds");
    return time;
  }
  std::string_view text(std::uint64_t number) const {
    require(number < texts_.size(), "a text of a number that is too large");
    return texts_[number];
  }

  Event event(Nanoseconds end) const {
    Event event;
    [&]<std::size_t... kKinds>(std::index_sequence<kKinds...> /*all*/) {
      require(kind() < kEventKinds, "an event of a kind that is unknown");
      ((kKinds == kind() ? visit_fields(*this, event.what.emplace<kKinds>()) : void()), ...);
    }
    (std::make_index_sequence<kEventKinds>());
    number(&EventRecord::step, event.step);
    if (!std::holds_alternative<FrameMoved>(event.what)) duration(&EventRecord::count, event.duration);
    event.start = Moment(end - event.duration);
    return event;
  }

  RecordedSource source() const {
    if (record_.source == 0 || is_report(kind())) return {};
    RecordedSource source{text(record_.source), text(record_.source + 1)};
    const std::string_view line = text(record_.source + 2);
    std::from_chars(line.data(), line.data() + line.size(), source.line);
    return source;
  }

  const InputFile& file_;
  const std::uint64_t offset_;  ///< of the part in the file
  EventPartHead head_;
  std::vector<char> bytes_;  ///< of the inflated body
  std::vector<std::string_view> texts_;
  EventRecord record_, upper_;
};

}  // namespace

void read_events(const std::string& path, RecordedEvents& into) {
  const InputFile file(path);
  for (std::uint64_t offset = 0; offset < file.size_bytes();) {
    Part part(file, offset);
    part.read(into);
    offset += part.size_bytes();
  }
}

}  // namespace psring
