#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/event_recorder.h>

namespace psring {
namespace {

using Bytes = EventRecorder::Bytes;

/// Upper bounds of a record's bytes: its numbers and reals, and its names and lines of source if all of them are new.
constexpr std::size_t kMostNumberBytes = 10;
constexpr std::size_t kMostRecordBytes = 16 * kMostNumberBytes + 4 * (kMostNumberBytes + 1 + kMostTextBytes);

/// Writes bytes from `at` on, where there is room.
class Output {
 public:
  explicit Output(std::byte* at) : at_(at) {}

  std::byte* end() const { return at_; }

  void byte(std::uint8_t value) { *at_++ = std::byte{value}; }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void signed_number(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void raw(const void* data, std::size_t size) {
    std::memcpy(at_, data, size);
    at_ += size;
  }
  void real(double value) { raw(&value, sizeof value); }
  void text(std::string_view text) {
    text = text.substr(0, kMostTextBytes);
    number(text.size());
    raw(text.data(), text.size());
  }
  void range(Range range) {
    number(range.begin);
    number(range.size());
  }
  /// 0 marks an event without a unit or a layer.
  void place(std::uint32_t place) { number(place == kNone ? 0 : std::uint64_t{place} + 1); }

 private:
  std::byte* at_;
};

/// A source_location is a pointer to constant data of the program; see the static_assert in events.h.
std::uintptr_t address(const std::source_location& source) { return std::bit_cast<std::uintptr_t>(source); }

std::int64_t count(Moment moment) { return moment.time_since_epoch().count(); }

}  // namespace

/// Writes records.
class EventRecorder::Writer {
 public:
  explicit Writer(EventRecorder& recorder) : recorder_(recorder), out_(nullptr) {}

  void write(const PackedEvent& event) {
    const Event* const whole = recorder_.packer_.whole(event);
    const auto* names = whole != nullptr ? std::get_if<UnitNames>(&whole->what) : nullptr;
    Bytes& records = recorder_.part_.records;
    const std::size_t room = kMostRecordBytes + (names == nullptr ? 0 : most_bytes(*names));
    if (records.size() < recorder_.size_ + room) records.resize(std::max(recorder_.size_ + room, 2 * records.size()));
    out_ = Output(records.data() + recorder_.size_);
    record(event, whole);
    recorder_.size_ = static_cast<std::size_t>(out_.end() - records.data());
  }

 private:
  static std::size_t most_bytes(const UnitNames& what) {
    return kMostNumberBytes + std::min(what.names.size(), kMostNames) * (kMostNumberBytes + kMostTextBytes);
  }

  void record(const PackedEvent& event, const Event* whole) {
    std::vector<Pattern>& patterns = recorder_.patterns_;
    const std::uint32_t last = std::exchange(recorder_.last_, kNone);
    std::uint32_t index = last == kNone ? kNone : patterns[last].next;
    const bool follows = index != kNone && holds(patterns[index], event);
    const bool known = follows || (index = find(event)) != kNone;
    if (!known) index = add(event);
    Pattern& pattern = patterns[index];
    const FrameCounts counts = counts_of(event, whole);
    const FrameCounts growth = counts - pattern.counts;
    const bool grows_anew = growth != pattern.growth;
    const std::uint64_t duration = duration_of(event, whole);
    const std::uint64_t step = whole != nullptr ? whole->step : event.step;
    const std::int64_t end = event.start + static_cast<std::int64_t>(duration);
    const bool lasts = duration > 0;
    const bool steps = step != recorder_.step_;
    out_.byte(static_cast<std::uint8_t>((follows ? 0 : kHasPattern) | (lasts ? kHasDuration : 0) |
                                        (steps ? kHasStep : 0) | (grows_anew ? kHasGrowth : 0)));
    if (!follows) out_.number(known ? index + 1 : 0);
    if (!known) describe(whole != nullptr ? *whole : recorder_.packer_.unpack(event));
    out_.signed_number(end - std::exchange(recorder_.end_, end));
    if (lasts) out_.number(duration);
    if (steps) out_.signed_number(static_cast<std::int64_t>(step - std::exchange(recorder_.step_, step)));
    if (grows_anew) {
      out_.signed_number(static_cast<std::int64_t>(growth.number));
      out_.signed_number(static_cast<std::int64_t>(growth.version));
    }
    if (whole != nullptr) std::visit([this](const auto& what) { values(what); }, whole->what);
    pattern.counts = counts;
    pattern.growth = growth;
    if (last != kNone) patterns[last].next = index;
    recorder_.last_ = index;
  }

  static bool is_frame(const PackedEvent& event) { return event.kind() == kind_of<FrameMoved>(); }
  static FrameCounts counts_of(const PackedEvent& event, const Event* whole) {
    if (!is_frame(event)) return {};
    if (whole == nullptr) return {event.count, event.version};
    const auto& frame = std::get<FrameMoved>(whole->what);
    return {frame.number, frame.version};
  }
  static std::uint64_t duration_of(const PackedEvent& event, const Event* whole) {
    if (whole != nullptr) return static_cast<std::uint64_t>(std::max<std::int64_t>(0, whole->duration.count()));
    return is_frame(event) ? 0 : event.count;
  }

  static bool holds(const Pattern& pattern, const PackedEvent& event) {
    return pattern.pattern == event.pattern && !event.is_large();
  }

  std::uint32_t find(const PackedEvent& event) const {
    const std::size_t key = hash(event.pattern);
    std::uint32_t& recent = recorder_.recent_[key >> (64 - kRecentBits)];
    if (recent < recorder_.patterns_.size() && holds(recorder_.patterns_[recent], event)) return recent;
    const auto found = recorder_.pattern_numbers_.find(key);
    if (found == recorder_.pattern_numbers_.end() || !holds(recorder_.patterns_[found->second], event)) return kNone;
    return recent = found->second;
  }

  std::uint32_t add(const PackedEvent& event) {
    const auto index = static_cast<std::uint32_t>(recorder_.patterns_.size());
    recorder_.patterns_.push_back({event.pattern});
    recorder_.pattern_numbers_.insert_or_assign(hash(event.pattern), index);
    return index;
  }

  static std::size_t hash(const PackedEvent::Pattern& pattern) {
    std::size_t hash = 0;
    for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, sizeof pattern / 8>>(pattern))
      hash = (hash ^ (hash >> 29) ^ word) * kFactor;
    return hash;
  }
  static constexpr std::size_t kFactor = 0x9E3779B97F4A7C15;

  /// Describes a new pattern.
  void describe(const Event& event) {
    out_.byte(static_cast<std::uint8_t>(event.what.index()));
    source(event.source);
    std::visit([this](const auto& what) { fields(what); }, event.what);
  }

  /// text = k:number | 0 bytes: the k-th text of the part, or a new one.
  void text(std::string_view text) {
    text = text.substr(0, kMostTextBytes);
    if (const auto found = recorder_.texts_.find(text); found != recorder_.texts_.end())
      return out_.number(found->second);
    recorder_.texts_.emplace(text, static_cast<std::uint32_t>(recorder_.texts_.size() + 1));
    out_.byte(0);
    out_.text(text);
  }

  /// source = k:number | 0 file function line: line k - 1 of the part, or a new one. 1: unknown.
  void source(const std::source_location& source) {
    if (source.line() == 0) return out_.byte(1);
    const auto [found, added] =
        recorder_.sources_.try_emplace(address(source), static_cast<std::uint32_t>(recorder_.sources_.size() + 2));
    if (!added) return out_.number(found->second);
    out_.byte(0);
    text(source.file_name());
    text(source.function_name());
    out_.number(source.line());
  }

  void fields(const UnitNames& /*what*/) {}
  void fields(const Activity& what) {
    text(what.name);
    out_.place(what.unit);
    out_.place(what.layer);
    text(what.peer.text());
    out_.number(what.bytes);
  }
  void fields(const Transfer& what) {
    text(what.name);
    out_.range(what.units);
    out_.number(what.bytes);
  }
  void fields(const DeviceWork& what) { text(what.name); }
  void fields(const FrameMoved& what) {
    out_.byte(what.arrived ? 1 : 0);
    text(what.operation);
    text(what.peer.text());
    out_.place(what.unit);
    out_.range(what.range);
    out_.number(what.bytes);
  }
  void fields(const Presence& what) {
    out_.byte(static_cast<std::uint8_t>((what.values == Presence::Values::gradients ? 1 : 0) | (what.here ? 2 : 0)));
    out_.place(what.unit);
    out_.number(what.bytes);
  }
  void fields(const GradientReady& what) {
    out_.byte(what.averaged ? 1 : 0);
    out_.range(what.units);
  }
  void fields(const StepReport& /*what*/) {}
  void fields(const Evaluation& /*what*/) {}

  void values(const auto& /*what*/) {}
  void values(const UnitNames& what) {
    const std::size_t named = std::min(what.names.size(), kMostNames);
    out_.number(named);
    for (std::size_t i = 0; i < named; ++i) out_.text(what.names[i]);
  }
  void values(const StepReport& what) {
    out_.number(what.step);
    out_.number(what.epoch);
    out_.real(what.loss);
    out_.number(what.samples);
    out_.signed_number(what.duration.count());
    out_.signed_number(what.exposed.count());
    out_.real(what.staleness);
  }
  void values(const Evaluation& what) {
    out_.number(what.step);
    out_.real(what.loss_sum);
    out_.number(what.rows);
    out_.number(what.correct);
  }

  EventRecorder& recorder_;
  Output out_;
};

void EventRecorder::begin_part(Moment base) {
  if (stream_ == 0) stream_ = static_cast<std::uint64_t>(count(base));
  part_ = {{}, base, std::exchange(dropped_, 0)};
  size_ = 0;
  open_ = true;
  texts_.clear();
  sources_.clear();
  patterns_.clear();
  pattern_numbers_.clear();
  last_ = kNone;
  end_ = count(base);
  step_ = 0;
  if (units_.names.empty()) return;
  const std::size_t kept = packer_.kept();
  PackedEvent names;
  packer_.keep({base, Nanoseconds{0}, 0, units_}, names);
  Writer(*this).write(names);
  packer_.clear(kept);
}

void EventRecorder::end_part() {
  if (!std::exchange(open_, false)) return;
  part_.records.resize(size_);
  waiting_bytes_ += size_;
  parts_.push_back(std::move(part_));
}

void EventRecorder::on_event(const Event& event) {
  if (owner_ != mark_of_thread()) return write_at_once(event);
  const std::size_t count = staged_count_.load(std::memory_order_relaxed);
  if (!EventPacker::pack(event, staged_[count])) {
    const std::scoped_lock lock(mutex_);
    packer_.keep(event, staged_[count]);
  }
  add_staged(count);
}

void EventRecorder::write_at_once(const Event& event) {
  const std::scoped_lock lock(mutex_);
  write_staged();
  const std::size_t kept = packer_.kept();
  PackedEvent packed;
  packer_.keep(event, packed);
  write(packed);
  packer_.clear(kept);
}

/// For the owner. If there is no memory left to write the events, they are lost.
void EventRecorder::empty_stage() {
  const std::scoped_lock lock(mutex_);
  const auto empty = [this] {
    written_ = 0;
    staged_count_.store(0, std::memory_order_relaxed);
    packer_.clear();
  };
  try {
    write_staged();
  } catch (...) {
    empty();
    throw;
  }
  empty();
}

void EventRecorder::write_staged() {
  const std::size_t count = staged_count_.load(std::memory_order_acquire);
  for (; written_ < count; ++written_) write(staged_[written_]);
}

void EventRecorder::write(const PackedEvent& event) {
  const bool full = waiting_bytes_ >= kMostBytes;
  if (full) ++dropped_;
  if (!full && !open_) {
    const Event first = packer_.unpack(event);
    begin_part(first.start + first.duration);
  }
  if (event.kind() == kind_of<UnitNames>()) units_ = std::get<UnitNames>(packer_.unpack(event).what);
  if (full) return;
  Writer(*this).write(event);
  if (size_ >= kPartBytes || patterns_.size() >= kMostPatterns) end_part();
}

std::vector<EventRecorder::Bytes> EventRecorder::take(const EventOrigin& origin) {
  std::vector<Part> parts;
  std::uint64_t stream = 0;
  {
    const std::scoped_lock lock(mutex_);
    write_staged();
    if (dropped_ > 0) begin_part(Moment(Nanoseconds(end_)));  // without records, for the count
    end_part();
    parts.swap(parts_);
    waiting_bytes_ = 0;
    stream = stream_;
  }
  std::vector<Bytes> taken;
  for (const Part& part : parts) {
    Bytes bytes(kPartHeadBytes + kMostRecordBytes);
    Output out(bytes.data() + kPartHeadBytes);
    out.text(origin.process);
    out.number(origin.number);
    out.number(stream);
    out.number(origin.epoch);
    out.signed_number(origin.offset.count());
    out.signed_number(count(part.base));
    out.number(part.dropped);
    bytes.resize(static_cast<std::size_t>(out.end() - bytes.data()));
    bytes.insert(bytes.end(), part.records.begin(), part.records.end());
    const auto body = std::span(bytes).subspan(kPartHeadBytes);
    const auto size = static_cast<std::uint32_t>(body.size());
    const std::uint32_t check = crc32c(body);
    std::memcpy(bytes.data(), kEventMagic.data(), 4);
    bytes[4] = std::byte{kEventVersion};
    std::memcpy(bytes.data() + 5, &size, 4);
    std::memcpy(bytes.data() + 9, &check, 4);
    taken.push_back(std::move(bytes));
  }
  return taken;
}

}  // namespace psring
