#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <psring/common/base/clock.h>
#include <psring/common/base/events/events.h>

namespace psring {

// The format of recorded events, which docs/events.md describes. The one writer is EventRecorder, the one reader
// read_events. All numbers are little-endian.
//
//   file = (EventPartHead body)*
//   body = zlib(text* columns)    text: characters, then a zero byte. Text 0 is empty.
//                                 columns: the first byte of each EventRecord, then the second byte of each, ...

inline constexpr std::uint8_t kEventVersion = 3;
inline constexpr std::size_t kMostTextBytes = 1024;                    ///< of a text; longer texts are cut
inline constexpr std::size_t kMostNames = 4096;                        ///< units with a name
inline constexpr std::size_t kMostTextsBytes = std::size_t{16} << 20;  ///< of all texts of a part
inline constexpr std::int64_t kMostTime = std::int64_t{1} << 60;       ///< nanoseconds before and after 0

struct EventPartHead {
  std::array<char, 4> magic = {'P', 'S', 'E', 'V'};
  std::uint32_t version = kEventVersion;  ///< until version 2 one byte; the upper three are 0
  std::uint32_t size = 0;                 ///< bytes of the body as it is in the file
  std::uint32_t text_bytes = 0;           ///< of the inflated body
  std::uint32_t records = 0;
  std::uint32_t check = 0;  ///< CRC32C of the head, with 0 for this field, and of the body
  std::uint32_t number = 0, epoch = 0;
  std::int64_t offset = 0;
  std::uint64_t stream = 0;
  std::int64_t base = 0;
  std::uint64_t dropped = 0;
  std::array<char, 32> process = {};  ///< filled up with zero bytes
};
static_assert(sizeof(EventPartHead) == 96 && std::has_unique_object_representations_v<EventPartHead>);

/// An event in one cache line. Names and lines of source are addresses in memory, and numbers of texts in a file.
struct alignas(64) EventRecord {
  std::uint64_t source = 0;  ///< a source_location is a pointer to constant data; in a file the first of three texts
  std::uint64_t name = 0;
  std::int64_t end = 0;     ///< in a file: minus the end of the record before, or minus the part's base
  std::uint64_t count = 0;  ///< the duration; FrameMoved: the frame's number
  std::uint32_t begin = 0, size = 0, bytes = 0, unit = 0, rank = 0, step = 0, version = 0;
  std::uint16_t name_size = 0;  ///< in a file 0
  std::uint8_t role = 0;        ///< its place in kEventRoles
  std::uint8_t state = 0;       ///< the kind, and flags

  static constexpr std::uint8_t kKind = 0x0f, kFlag = 0x10, kFlag2 = 0x20;
  /// Marks a record with the upper halves of the 32-bit fields of the record after it, which do not fit into that.
  static constexpr std::uint8_t kUpper = 0x0f;
};
static_assert(sizeof(EventRecord) == 64 && std::has_unique_object_representations_v<EventRecord>);
inline constexpr std::size_t kPartRecords = (std::size_t{1} << 20) / sizeof(EventRecord);

/// The roles that a peer of an event may have.
inline constexpr std::array<std::string_view, 6> kEventRoles{"", "worker", "server", "stage", "coordinator", "agent"};

/// The places of the alternatives of Event::what are the kinds' numbers.
inline constexpr std::size_t kEventKinds = std::variant_size_v<decltype(Event::what)>;
static_assert(kEventKinds == 9, "a new kind of event needs its fields below and in docs/events.md");

/// Returns the number of the kind `What`.
template <class What, std::size_t kKind = 0>
constexpr std::size_t kind_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<kKind, decltype(Event::what)>, What>)
    return kKind;
  else
    return kind_of<What, kKind + 1>();
}

/// Returns whether events of this kind have neither a name nor a line of source: their records have values there.
constexpr bool is_report(std::size_t kind) { return kind >= kind_of<StepReport>(); }

/// Passes each field of an event, with the field of its record, to `io`, which packs or unpacks it.
template <class Io, class What>
void visit_fields(Io& io, What& what) {
  using Record = EventRecord;
  using Kind = std::remove_const_t<What>;
  if constexpr (std::same_as<Kind, UnitNames>) {
    io.names(what);
  } else if constexpr (std::same_as<Kind, Activity>) {
    io.name(what.name);
    io.number(&Record::unit, what.unit);
    io.number(&Record::begin, what.layer);
    io.peer(what.peer);
    io.number(&Record::bytes, what.bytes);
  } else if constexpr (std::same_as<Kind, Transfer>) {
    io.name(what.name);
    io.range(what.units);
    io.number(&Record::bytes, what.bytes);
  } else if constexpr (std::same_as<Kind, DeviceWork>) {
    io.name(what.name);
  } else if constexpr (std::same_as<Kind, FrameMoved>) {
    io.flag(Record::kFlag, what.arrived);
    io.name(what.operation);
    io.number(&Record::unit, what.unit);
    io.peer(what.peer);
    io.number(&Record::count, what.number);
    io.range(what.range);
    io.number(&Record::bytes, what.bytes);
    io.number(&Record::version, what.version);
  } else if constexpr (std::same_as<Kind, Presence>) {
    io.flag(Record::kFlag, what.here);
    io.flag(Record::kFlag2, what.values);
    io.number(&Record::unit, what.unit);
    io.number(&Record::bytes, what.bytes);
  } else if constexpr (std::same_as<Kind, GradientReady>) {
    io.flag(Record::kFlag, what.averaged);
    io.range(what.units);
  } else if constexpr (std::same_as<Kind, StepReport>) {
    io.number(&Record::step, what.step);
    io.number(&Record::version, what.epoch);
    io.real(&Record::source, what.loss);
    io.number(&Record::size, what.samples);
    io.duration(&Record::count, what.duration);
    io.duration(&Record::begin, what.exposed);
    io.real(&Record::name, what.staleness);
  } else {
    io.number(&Record::step, what.step);
    io.real(&Record::source, what.loss_sum);
    io.number(&Record::size, what.rows);
    io.number(&Record::begin, what.correct);
  }
}

/// The process and the membership epoch in which a part was recorded.
struct EventOrigin {
  std::string process;       ///< as its peers call it: "worker 3"
  std::uint64_t number = 0;  ///< of the process in a trace: workers from 1, servers from 1001
  std::uint64_t epoch = 0;   ///< counts the times that the job has regrouped, as frames are then numbered from 0 again
  Nanoseconds offset{0};     ///< the job's clock minus this process's
};

}  // namespace psring
