#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/error.h>
#include <psring/common/base/event_reader.h>
#include <psring/common/base/file.h>

namespace psring {
namespace {

/// Reads the numbers and texts of a part's body.
class Cursor {
 public:
  /// `offset`: of the body in the file.
  Cursor(std::span<const std::byte> body, const std::string& path, std::uint64_t offset)
      : body_(body), path_(path), offset_(offset) {}

  bool at_end() const { return at_ == body_.size(); }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::data, "{}: byte {}: {}", path_, offset_ + at_, fmt::format(format, std::forward<Args>(args)...));
  }
  void require(bool holds, const char* what) const {
    if (!holds) refuse("{}", what);
  }

  std::uint8_t byte() { return std::to_integer<std::uint8_t>(raw(1)[0]); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t next = byte();
      require(shift < 63 || next <= 1, "a number of more than 64 bits");
      value |= std::uint64_t{next & 0x7fU} << shift;
      if (next < 0x80) return value;
    }
  }
  std::uint64_t number_below(std::uint64_t bound, const char* what) {
    const std::uint64_t value = number();
    if (value >= bound) refuse("{} {}, expected less than {}", what, value, bound);
    return value;
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ (0 - (value & 1)));
  }
  Nanoseconds time() {
    const std::int64_t value = signed_number();
    require(value >= -kMostTime && value <= kMostTime, "a time out of bounds");
    return Nanoseconds(value);
  }
  double real() {
    double value = 0;
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint32_t place() {
    const std::uint64_t value = number_below(std::uint64_t{kNone} + 1, "a place");
    return value == 0 ? kNone : static_cast<std::uint32_t>(value - 1);
  }
  Range range() {
    const std::uint64_t begin = number();
    const std::uint64_t size = number();
    require(size <= UINT64_MAX - begin, "a range beyond 64 bits");
    return {begin, begin + size};
  }
  std::string_view text() {
    const auto bytes = raw(number_below(kMostTextBytes + 1, "a text of size"));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> raw(std::size_t size) {
    if (size > body_.size() - at_) refuse("{} bytes are left of the part, expected {}", body_.size() - at_, size);
    return body_.subspan(std::exchange(at_, at_ + size), size);
  }

  const std::span<const std::byte> body_;
  const std::string& path_;
  const std::uint64_t offset_;
  std::size_t at_ = 0;
};

/// Decodes the records of a part.
class PartReader {
 public:
  explicit PartReader(Cursor& in) : in_(in) {}

  RecordedPart head() {
    part_.origin.process = in_.text();
    part_.origin.number = in_.number_below(UINT32_MAX, "a process's number");
    part_.stream = in_.number();
    part_.origin.epoch = in_.number();
    part_.origin.offset = in_.time();
    end_ = in_.time();
    part_.base = Moment(end_);
    part_.dropped = in_.number();
    return part_;
  }

  void records(RecordedEvents& into) {
    while (!in_.at_end()) {
      const Pattern& pattern = record();
      into.on_event(part_, pattern.event, pattern.source);
    }
  }

 private:
  /// The common part of records, and the last of them.
  struct Pattern {
    Event event;
    RecordedSource source;
    FrameCounts counts = {};
    FrameCounts growth = {};
    std::size_t next = kMostPatterns;  ///< the pattern of the record after the last one; kMostPatterns: none yet
  };

  /// Returns the pattern of the next record. Its event is that of the record.
  const Pattern& record() {
    const std::uint8_t head = in_.byte();
    if ((head & ~kHeadBits) != 0) in_.refuse("the head {:#04x} of a record, expected at most {:#04x}", head, kHeadBits);
    const std::size_t index = (head & kHasPattern) != 0 ? pattern() : following();
    if (last_ != kMostPatterns) patterns_[last_].next = index;
    last_ = index;
    Pattern& pattern = patterns_[index];
    Event& event = pattern.event;
    end_ += in_.time();
    in_.require(end_.count() >= -kMostTime && end_.count() <= kMostTime, "a time out of bounds");
    event.duration = Nanoseconds{0};
    if ((head & kHasDuration) != 0)
      event.duration = Nanoseconds(in_.number_below(std::uint64_t{kMostTime} + 1, "a duration"));
    if ((head & kHasStep) != 0) step_ += static_cast<std::uint64_t>(in_.signed_number());
    event.start = Moment(end_ - event.duration);
    event.step = step_;
    if ((head & kHasGrowth) != 0) {
      pattern.growth.number = static_cast<std::uint64_t>(in_.signed_number());
      pattern.growth.version = static_cast<std::uint64_t>(in_.signed_number());
    }
    pattern.counts = pattern.counts + pattern.growth;
    if (auto* frame = std::get_if<FrameMoved>(&event.what)) {
      frame->number = pattern.counts.number;
      frame->version = pattern.counts.version;
    }
    std::visit([this](auto& what) { values(what); }, event.what);
    return pattern;
  }

  std::size_t following() const {
    const std::size_t next = last_ == kMostPatterns ? kMostPatterns : patterns_[last_].next;
    in_.require(next != kMostPatterns, "a record without a pattern, where none has followed yet");
    return next;
  }

  std::size_t pattern() {
    const std::uint64_t number = in_.number_below(patterns_.size() + 1, "the number of a pattern");
    if (number > 0) return number - 1;
    in_.require(patterns_.size() < kMostPatterns, "too many patterns in a part");
    Pattern& pattern = patterns_.emplace_back();
    const std::size_t kind = in_.number_below(kEventKinds, "the kind of an event");
    pattern.source = source();
    what(pattern.event, kind);
    return patterns_.size() - 1;
  }

  std::string_view text() {
    const std::uint64_t number = in_.number_below(texts_.size() + 1, "the number of a text");
    if (number > 0) return texts_[number - 1];
    in_.require(texts_.size() < kMostTexts, "too many texts in a part");
    texts_.push_back(in_.text());
    return texts_.back();
  }
  RecordedSource source() {
    const std::uint64_t number = in_.number_below(sources_.size() + 2, "the number of a line of source");
    if (number == 1) return {};
    if (number > 1) return sources_[number - 2];
    in_.require(sources_.size() < kMostTexts, "too many lines of source in a part");
    RecordedSource line{.file = text()};
    line.function = text();
    line.line = in_.number();
    sources_.push_back(line);
    return line;
  }
  std::uint8_t flags(std::uint8_t most) {
    const std::uint8_t value = in_.byte();
    if (value > most) in_.refuse("flags {:#04x}, expected at most {:#04x}", value, most);
    return value;
  }

  template <std::size_t kKind>
  using What = std::variant_alternative_t<kKind, decltype(Event::what)>;

  template <std::size_t... kKinds>
  void what_of(Event& event, std::size_t kind, std::index_sequence<kKinds...> /*all*/) {
    ((kKinds == kind ? fields(event.what.emplace<kKinds>()) : void()), ...);
  }
  void what(Event& event, std::size_t kind) { what_of(event, kind, std::make_index_sequence<kEventKinds>()); }

  void fields(UnitNames& /*what*/) {}
  void fields(Activity& what) {
    what.name = text();
    what.unit = in_.place();
    what.layer = in_.place();
    what.peer = parse_peer_name(text());
    what.bytes = in_.number();
  }
  void fields(Transfer& what) {
    what.name = text();
    what.units = in_.range();
    what.bytes = in_.number();
  }
  void fields(DeviceWork& what) { what.name = text(); }
  void fields(FrameMoved& what) {
    what.arrived = flags(1) != 0;
    what.operation = text();
    what.peer = parse_peer_name(text());
    what.unit = in_.place();
    what.range = in_.range();
    what.bytes = in_.number();
  }
  void fields(Presence& what) {
    const std::uint8_t flags = this->flags(3);
    what.values = (flags & 1) != 0 ? Presence::Values::gradients : Presence::Values::parameters;
    what.here = (flags & 2) != 0;
    what.unit = in_.place();
    what.bytes = in_.number();
  }
  void fields(GradientReady& what) {
    what.averaged = flags(1) != 0;
    what.units = in_.range();
  }
  void fields(StepReport& /*what*/) {}
  void fields(Evaluation& /*what*/) {}

  void values(auto& /*what*/) {}
  void values(UnitNames& what) {
    what.names.clear();
    const std::uint64_t names = in_.number_below(kMostNames + 1, "a number of units");
    for (std::uint64_t i = 0; i < names; ++i) what.names.emplace_back(in_.text());
  }
  void values(StepReport& what) {
    what.step = in_.number();
    what.epoch = in_.number();
    what.loss = in_.real();
    what.samples = in_.number();
    what.duration = in_.time();
    what.exposed = in_.time();
    what.staleness = in_.real();
  }
  void values(Evaluation& what) {
    what.step = in_.number();
    what.loss_sum = in_.real();
    what.rows = in_.number();
    what.correct = in_.number();
  }

  Cursor& in_;
  RecordedPart part_;
  std::vector<std::string_view> texts_;  ///< in the part's bytes
  std::vector<RecordedSource> sources_;
  std::vector<Pattern> patterns_;
  std::size_t last_ = kMostPatterns;  ///< pattern of the last record; kMostPatterns: none yet
  Nanoseconds end_{0};                ///< of the last record
  std::uint64_t step_ = 0;            ///< of the last record
};

struct PartHead {
  std::uint32_t size = 0;
  std::uint32_t check = 0;
};

/// `left`: number of bytes from the part to the file's end.
PartHead read_head(const InputFile& file, std::uint64_t offset, std::uint64_t left) {
  const auto refuse = [&](std::uint64_t at, const std::string& what) {
    fail(ErrorKind::data, "{}: byte {}: {}", file.path(), offset + at, what);
  };
  if (left < kPartHeadBytes) refuse(0, fmt::format("the file is cut: {} bytes of a part's head", left));
  std::array<std::byte, kPartHeadBytes> bytes{};
  file.read(offset, bytes);
  if (std::memcmp(bytes.data(), kEventMagic.data(), kEventMagic.size()) != 0)
    refuse(0, "no part of recorded events begins here");
  if (const auto version = std::to_integer<unsigned>(bytes[4]); version != kEventVersion)
    refuse(4, fmt::format("events of version {}, expected {}", version, kEventVersion));
  PartHead head;
  std::memcpy(&head.size, bytes.data() + 5, 4);
  std::memcpy(&head.check, bytes.data() + 9, 4);
  if (head.size > kMostBodyBytes)
    refuse(5, fmt::format("a part of {} bytes, expected at most {}", head.size, kMostBodyBytes));
  if (head.size > left - kPartHeadBytes)
    refuse(5, fmt::format("the file is cut: {} of {} bytes of a part", left - kPartHeadBytes, head.size));
  return head;
}

}  // namespace

void read_events(const std::string& path, RecordedEvents& into) {
  const InputFile file(path);
  std::vector<std::byte> body;
  for (std::uint64_t offset = 0; offset < file.size_bytes();) {
    const PartHead head = read_head(file, offset, file.size_bytes() - offset);
    body.resize(head.size);
    file.read(offset + kPartHeadBytes, body);
    if (crc32c(body) != head.check)
      fail(ErrorKind::data, "{}: byte {}: a part whose checksum is wrong", path, offset + kPartHeadBytes);
    Cursor in(body, path, offset + kPartHeadBytes);
    PartReader reader(in);
    into.on_part(reader.head());
    reader.records(into);
    offset += kPartHeadBytes + head.size;
  }
}

}  // namespace psring
