#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <span>
#include <tuple>
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

/// Writes a record's fields, by kind.
class EventRecorder::Writer {
 public:
  explicit Writer(EventRecorder& recorder) : recorder_(recorder), out_(nullptr) {}

  void write(const Event& event) {
    const auto* names = std::get_if<UnitNames>(&event.what);
    Bytes& records = recorder_.part_.records;
    const std::size_t room = kMostRecordBytes + (names == nullptr ? 0 : most_bytes(*names));
    if (records.size() < recorder_.size_ + room) records.resize(recorder_.size_ + room);
    out_ = Output(records.data() + recorder_.size_);
    const std::int64_t end = count(event.start) + event.duration.count();
    const bool lasts = event.duration.count() > 0;
    const bool steps = event.step != recorder_.step_;
    out_.byte(static_cast<std::uint8_t>(event.what.index() | (lasts ? kHasDuration : 0) | (steps ? kHasStep : 0)));
    out_.signed_number(end - std::exchange(recorder_.end_, end));
    if (lasts) out_.number(static_cast<std::uint64_t>(event.duration.count()));
    if (steps) out_.signed_number(static_cast<std::int64_t>(event.step - std::exchange(recorder_.step_, event.step)));
    numbers_ = &find_numbers(event);
    source(event.source);
    std::visit([this](const auto& what) { fields(what); }, event.what);
    recorder_.size_ = static_cast<std::size_t>(out_.end() - records.data());
  }

 private:
  static std::size_t most_bytes(const UnitNames& what) {
    return kMostNumberBytes + std::min(what.names.size(), kMostNames) * (kMostNumberBytes + kMostTextBytes);
  }

  /// Spreads keys over the places of recent texts. Texts of the same line often differ only at their end: "server 3".
  static std::size_t place_of(const TextKey& key, std::string_view text) {
    constexpr int kBits = std::countr_zero(std::tuple_size_v<decltype(EventRecorder::recent_texts_)>);
    const std::uint64_t end = text.empty() ? 0 : static_cast<std::uint8_t>(text.back());
    const auto name = std::bit_cast<std::uintptr_t>(key.name.data());
    return ((key.source ^ (name << 16) ^ (end << 48)) * 0x9E3779B97F4A7C15) >> (64 - kBits);
  }

  /// Returns the numbers of an event's texts, as far as an event with the same texts was written lately; else zeros.
  Numbers& find_numbers(const Event& event) {
    TextKey key;
    key.source = address(event.source);
    std::string_view text;
    if (const auto* activity = std::get_if<Activity>(&event.what)) {
      key.name = activity->name;
      text = activity->peer;
    } else if (const auto* frame = std::get_if<FrameMoved>(&event.what)) {
      key.name = frame->operation;
      text = frame->peer;
    } else if (const auto* transfer = std::get_if<Transfer>(&event.what)) {
      text = transfer->name;
    } else if (const auto* work = std::get_if<DeviceWork>(&event.what)) {
      text = work->name;
    }
    RecentTexts& recent = text.size() > sizeof key.text ? uncached_ : recorder_.recent_texts_[place_of(key, text)];
    if (&recent == &uncached_ || !recent.key.holds(key, text)) {
      key.set_text(text.substr(0, sizeof key.text));
      recent = {key, {}};
    }
    return recent.numbers;
  }

  /// text = number | 0 bytes: the text's number in the part, from 1, or a new text. `number` is 0 if not known yet.
  void text(std::string_view text, std::uint32_t& number) {
    if (number > 0) return out_.number(number);
    text = text.substr(0, kMostTextBytes);
    const auto found = recorder_.texts_.find(text);
    const bool known = found != recorder_.texts_.end();
    number = known ? found->second : static_cast<std::uint32_t>(recorder_.texts_.size() + 1);
    if (known) return out_.number(number);
    recorder_.texts_.emplace(text, number);
    out_.byte(0);
    out_.text(text);
  }

  /// source = number | 0 file function line: the line's number in the part, from 2, or a new line. 1: unknown.
  void source(const std::source_location& source) {
    if (source.line() == 0) return out_.byte(1);
    std::uint32_t& number = numbers_->source;
    if (number > 0) return out_.number(number);
    const auto [found, added] =
        recorder_.sources_.try_emplace(address(source), static_cast<std::uint32_t>(recorder_.sources_.size() + 2));
    number = found->second;
    if (!added) return out_.number(number);
    std::uint32_t file = 0;
    std::uint32_t function = 0;
    out_.byte(0);
    text(source.file_name(), file);
    text(source.function_name(), function);
    out_.number(source.line());
  }

  void fields(const UnitNames& what) {
    const std::size_t named = std::min(what.names.size(), kMostNames);
    out_.number(named);
    for (std::size_t i = 0; i < named; ++i) out_.text(what.names[i]);
  }
  void fields(const Activity& what) {
    text(what.name, numbers_->name);
    out_.place(what.unit);
    out_.place(what.layer);
    text(what.peer, numbers_->text);
    out_.number(what.bytes);
  }
  void fields(const Transfer& what) {
    text(what.name, numbers_->text);
    out_.range(what.units);
    out_.number(what.bytes);
  }
  void fields(const DeviceWork& what) { text(what.name, numbers_->text); }
  void fields(const FrameMoved& what) {
    out_.byte(what.arrived ? 1 : 0);
    text(what.operation, numbers_->name);
    text(what.peer, numbers_->text);
    out_.number(what.number);
    out_.place(what.unit);
    out_.range(what.range);
    out_.number(what.bytes);
    out_.number(what.version);
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
  void fields(const StepReport& what) {
    out_.number(what.step);
    out_.number(what.epoch);
    out_.real(what.loss);
    out_.number(what.samples);
    out_.signed_number(what.duration.count());
    out_.signed_number(what.exposed.count());
    out_.real(what.staleness);
  }
  void fields(const Evaluation& what) {
    out_.number(what.step);
    out_.real(what.loss_sum);
    out_.number(what.rows);
    out_.number(what.correct);
  }

  EventRecorder& recorder_;
  Output out_;
  Numbers* numbers_ = nullptr;  ///< of the event that is being written
  RecentTexts uncached_;        ///< of an event whose text is too long for the cache
};

void EventRecorder::begin_part(Moment base) {
  if (stream_ == 0) stream_ = static_cast<std::uint64_t>(count(base));
  part_ = {{}, base, std::exchange(dropped_, 0)};
  part_.records.resize(kPartBytes + kMostRecordBytes);
  size_ = 0;
  open_ = true;
  texts_.clear();
  sources_.clear();
  recent_texts_.fill({});
  end_ = count(base);
  step_ = 0;
  if (!units_.names.empty()) Writer(*this).write({base, Nanoseconds{0}, 0, units_});
}

void EventRecorder::end_part() {
  if (!std::exchange(open_, false)) return;
  part_.records.resize(size_);
  waiting_bytes_ += size_;
  parts_.push_back(std::move(part_));
}

void EventRecorder::on_event(const Event& event) {
  const std::scoped_lock lock(mutex_);
  const bool full = waiting_bytes_ >= kMostBytes;
  if (full) ++dropped_;
  if (!full && !open_) begin_part(event.start + event.duration);
  if (const auto* names = std::get_if<UnitNames>(&event.what)) units_ = *names;
  if (full) return;
  Writer(*this).write(event);
  if (size_ >= kPartBytes || texts_.size() >= kMostTexts / 2) end_part();
}

std::vector<EventRecorder::Bytes> EventRecorder::take(const EventOrigin& origin) {
  std::vector<Part> parts;
  std::uint64_t stream = 0;
  {
    const std::scoped_lock lock(mutex_);
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
