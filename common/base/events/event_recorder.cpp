#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include <zlib.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/events/event_recorder.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>

namespace psring {
namespace {

/// A part also needs room for the names of units.
constexpr std::size_t kBlockRecords = kPartRecords - 2;

}  // namespace

/// Fills in the record of one event. REQUIRES: the recorder's mutex is held.
class EventRecorder::Packing {
 public:
  explicit Packing(EventRecorder& recorder) : recorder_(recorder) {}

  template <class What>
  void pack(const EventHead& head, const What& what) {
    record_.source = std::bit_cast<std::uintptr_t>(head.source);
    record_.count = static_cast<std::uint64_t>(std::max<std::int64_t>(0, head.duration.count()));
    record_.end = head.start.time_since_epoch().count() + static_cast<std::int64_t>(record_.count);
    record_.state = static_cast<std::uint8_t>(kind_of<What>());
    number(&EventRecord::step, head.step);
    visit_fields(*this, what);
    recorder_.mutex_.assert_held();
    recorder_.add(record_, is_wide_ ? &upper_ : nullptr);
  }

  void names(const UnitNames& what) {
    recorder_.mutex_.assert_held();
    record_.name = reinterpret_cast<std::uintptr_t>(&recorder_.units_.emplace_back(what));
    record_.size = static_cast<std::uint32_t>(std::min(what.names.size(), kMostNames));
  }
  void name(const std::string& name) {
    recorder_.mutex_.assert_held();
    this->name(std::string_view(*recorder_.names_.insert(name).first));
  }
  void name(std::string_view name) {
    record_.name = reinterpret_cast<std::uintptr_t>(name.data());
    record_.name_size = static_cast<std::uint16_t>(std::min(name.size(), kMostTextBytes));
  }
  void peer(const PeerName& peer) {
    const auto found = std::find(kEventRoles.begin(), kEventRoles.end(), peer.role);
    check(found != kEventRoles.end(), "an event of a peer with the role '{}'", peer.role);
    record_.role = static_cast<std::uint8_t>(found - kEventRoles.begin());
    record_.rank = peer.rank;
  }
  template <class Value>
  void flag(std::uint8_t flag, Value value) {
    if (static_cast<bool>(value)) record_.state |= flag;
  }
  void number(std::uint64_t EventRecord::*field, std::uint64_t value) { record_.*field = value; }
  void number(std::uint32_t EventRecord::*field, std::uint64_t value) {
    record_.*field = static_cast<std::uint32_t>(value);
    upper_.*field = static_cast<std::uint32_t>(value >> 32);
    is_wide_ = is_wide_ || upper_.*field != 0;
  }
  void duration(auto EventRecord::*field, Nanoseconds value) {
    number(field, static_cast<std::uint64_t>(value.count()));
  }
  void real(std::uint64_t EventRecord::*field, double value) { record_.*field = std::bit_cast<std::uint64_t>(value); }
  void range(Range range) {
    number(&EventRecord::begin, range.begin);
    number(&EventRecord::size, range.size());
  }

 private:
  EventRecorder& recorder_;
  EventRecord record_;
  EventRecord upper_{.state = EventRecord::kUpper};
  bool is_wide_ = false;
};

template <class What>
void EventRecorder::pack(const EventHead& head, const What& what) {
  const MutexLock lock(mutex_);
  Packing(*this).pack(head, what);
}

template <FlatDetail What>
bool EventRecorder::put(const EventHead& head, const What& what) {
  pack(head, what);
  return true;
}
template bool EventRecorder::put(const EventHead& head, const Activity& what);
template bool EventRecorder::put(const EventHead& head, const Transfer& what);
template bool EventRecorder::put(const EventHead& head, const FrameMoved& what);
template bool EventRecorder::put(const EventHead& head, const Presence& what);
template bool EventRecorder::put(const EventHead& head, const GradientReady& what);

void EventRecorder::on_event(const Event& event) {
  std::visit(
      [&](const auto& what) {
        pack({event.start, event.duration, event.step, event.source}, what);
      },
      event.what);
}

void EventRecorder::add(const EventRecord& record, const EventRecord* upper) {
  if (blocks_.empty() || blocks_.back().records.size() + 2 > kBlockRecords) {
    if (blocks_.size() == kMostBytes / (kPartRecords * sizeof(EventRecord))) return void(++dropped_);
    blocks_.push_back({{}, std::exchange(dropped_, 0)});
    blocks_.back().records.reserve(kBlockRecords);
    if (blocks_.size() > 1) full_.notify_one();
  }
  std::vector<EventRecord>& records = blocks_.back().records;
  if (upper != nullptr) records.push_back(*upper);
  records.push_back(record);
  // The next record's place is not in the processor's first-level cache: to fetch it now saves the wait.
  __builtin_prefetch(records.data() + records.size(), 1);
}

void EventRecorder::deflate_for(Nanoseconds time, const std::stop_token& stop) {
  const auto until = std::chrono::steady_clock::now() + time;
  const auto is_full = [this] {
    mutex_.assert_held();
    return blocks_.size() > 1 && parts_bytes_ < kMostBytes;
  };
  const auto wait = [&] {
    MutexLock lock(mutex_);
    return full_.wait_until(mutex_, stop, until, is_full);
  };
  while (wait()) {
    const MutexLock lock(deflating_);
    deflate(1);
  }
}

void EventRecorder::deflate(std::size_t left) {
  std::deque<Block> blocks;
  {
    const MutexLock lock(mutex_);
    for (; blocks_.size() > left; blocks_.pop_front()) blocks.push_back(std::move(blocks_.front()));
    if (blocks_.empty() && dropped_ > 0) blocks.push_back({{}, std::exchange(dropped_, 0)});
  }
  for (const Block& block : blocks) {
    std::span<const EventRecord> rest = block.records;
    std::uint64_t dropped = block.dropped;
    do rest = rest.subspan(deflate_part(rest, std::exchange(dropped, 0)));
    while (!rest.empty());
  }
}

/// The texts of a part, and their numbers by address.
class EventRecorder::Texts {
 public:
  const std::string& bytes() const { return bytes_; }

  std::uint64_t number_of(std::uint64_t address, std::uint16_t size) {
    if (size == 0) return 0;
    const auto [found, is_new] = numbers_.try_emplace({address, size}, count_);
    if (is_new) add({reinterpret_cast<const char*>(address), size});
    return found->second;
  }
  std::uint64_t number_of(const std::source_location& source) {
    if (source.line() == 0) return 0;
    const auto [found, is_new] = numbers_.try_emplace({std::bit_cast<std::uintptr_t>(source), 0}, count_);
    if (!is_new) return found->second;
    for (const char* text : {source.file_name(), source.function_name()}) add(text);
    add(std::to_string(source.line()));
    return found->second;
  }
  std::uint64_t number_of(const UnitNames& units) {
    const std::uint64_t first = count_;
    for (std::size_t i = 0; i < std::min(units.names.size(), kMostNames); ++i) add(units.names[i]);
    return first;
  }

 private:
  void add(std::string_view text) {
    bytes_.append(text.substr(0, std::min(text.find('\0'), kMostTextBytes))).push_back('\0');
    ++count_;
  }

  std::string bytes_ = std::string(1, '\0');
  std::uint64_t count_ = 1;
  std::map<std::pair<std::uint64_t, std::uint16_t>, std::uint64_t> numbers_;
};

std::size_t EventRecorder::deflate_part(std::span<const EventRecord> records, std::uint64_t dropped) {
  Texts texts;
  std::vector<EventRecord> out;
  const auto is_upper = [](const EventRecord& record) { return record.state == EventRecord::kUpper; };
  if (!records.empty()) end_ = records[is_upper(records[0]) ? 1 : 0].end;
  if (stream_ == 0) stream_ = static_cast<std::uint64_t>(end_);
  EventPartHead head{.stream = stream_, .base = end_, .dropped = dropped};
  const auto add = [&](const EventRecord& recorded) {
    deflating_.assert_held();
    EventRecord& record = out.emplace_back(recorded);
    const std::size_t kind = record.state & EventRecord::kKind;
    if (!is_report(kind)) {
      record.source = texts.number_of(std::bit_cast<std::source_location>(record.source));
      record.name = kind == kind_of<UnitNames>() ? texts.number_of(*reinterpret_cast<const UnitNames*>(record.name))
                                                 : texts.number_of(record.name, record.name_size);
      record.name_size = 0;
    }
    if (!is_upper(record)) record.end -= std::exchange(end_, record.end);
  };
  unit_names_.end = end_;
  if (unit_names_.name != 0) add(unit_names_);
  std::size_t used = 0;
  while (used < records.size() && out.size() + 2 <= kPartRecords && texts.bytes().size() < kMostTextsBytes / 2) {
    do add(records[used]);
    while (is_upper(records[used++]));
    if (const EventRecord& record = records[used - 1]; record.state == kind_of<UnitNames>())
      unit_names_ = {.name = record.name, .size = record.size};
  }
  std::string body = texts.bytes();
  for (std::size_t at = 0; at < sizeof(EventRecord); ++at)
    for (const EventRecord& record : out) body.push_back(reinterpret_cast<const char*>(&record)[at]);
  head.text_bytes = static_cast<std::uint32_t>(texts.bytes().size());
  head.records = static_cast<std::uint32_t>(out.size());
  uLongf size = compressBound(body.size());
  Bytes part(sizeof head + size);
  const int status = compress2(reinterpret_cast<Bytef*>(part.data() + sizeof head), &size,
                               reinterpret_cast<const Bytef*>(body.data()), body.size(), Z_BEST_SPEED);
  check(status == Z_OK, "zlib cannot deflate a part of events: {}", status);
  head.size = static_cast<std::uint32_t>(size);
  std::memcpy(part.data(), &head, sizeof head);
  part.resize(sizeof head + size);
  const MutexLock lock(mutex_);
  parts_bytes_ += part.size();
  parts_.push_back(std::move(part));
  return used;
}

std::vector<EventRecorder::Bytes> EventRecorder::take(const EventOrigin& origin) {
  const MutexLock lock(deflating_);
  deflate(0);
  std::vector<Bytes> parts;
  {
    const MutexLock guard(mutex_);
    parts.swap(parts_);
    parts_bytes_ = 0;
  }
  for (Bytes& part : parts) {
    EventPartHead head;
    std::memcpy(&head, part.data(), sizeof head);
    head.number = static_cast<std::uint32_t>(origin.number);
    head.epoch = static_cast<std::uint32_t>(origin.epoch);
    head.offset = origin.offset.count();
    origin.process.copy(head.process.data(), head.process.size());
    const std::uint32_t check = crc32c(std::as_bytes(std::span(&head, 1)));
    head.check = crc32c(std::span(part).subspan(sizeof head), check);
    std::memcpy(part.data(), &head, sizeof head);
  }
  return parts;
}

}  // namespace psring
