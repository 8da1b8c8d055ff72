#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <psring/common/base/clock.h>
#include <psring/common/base/events.h>

namespace psring {

// The format of recorded events; docs/events.md explains it. The one encoder is EventRecorder, the one decoder
// read_events.
//
//   file   = part*
//   part   = "PSEV" version:u8 size:u32 check:u32 body    size: bytes of the body; check: CRC32C of the body;
//                                                         little-endian
//   body   = process:text number:unsigned stream:unsigned epoch:unsigned offset:signed base:signed dropped:unsigned
//            record*
//   record  = head:u8 pattern? end:signed duration:unsigned? step:signed? (number:signed version:signed)? values
//   pattern = k:unsigned | 0 kind:u8 source fields
//
// Events repeat from step to step, in nearly the same order. A pattern is what an event has in common with its
// repetitions: its kind, its line of source and all fields but its time, its step, and a frame's number and version. It
// is written once in a part, and later by its number; and not even that if the pattern follows the one before it, as it
// did the last time. A frame's number and version grow from one record of a pattern to the next, mostly by as much as
// the time before; `number` and `version` are the differences if they do not. `values` are the fields of events that do
// not repeat, such as a step's loss.
//
// `head` tells which of the optional fields follow. Numbers are varints: seven bits a byte, the lowest first; bit 7 is
// set in all bytes but the last. Signed numbers are zigzag-coded. A record's `end` is the difference to the end of the
// record before it, or to `base`; `step` is the difference to the step before it, or to 0. Texts and lines of source
// are written once in a part, and later by their number.

inline constexpr std::string_view kEventMagic = "PSEV";
inline constexpr std::uint8_t kEventVersion = 2;
inline constexpr std::size_t kPartHeadBytes = 4 + 1 + 4 + 4;
inline constexpr std::size_t kMostBodyBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMostTextBytes = 1024;                 ///< of a text; longer texts are cut
inline constexpr std::size_t kMostTexts = std::size_t{1} << 16;     ///< texts, and lines of source, of a part
inline constexpr std::size_t kMostNames = 4096;                     ///< units with a name
inline constexpr std::int64_t kMostTime = std::int64_t{1} << 60;    ///< nanoseconds before and after 0
inline constexpr std::size_t kMostPatterns = std::size_t{1} << 14;  ///< of a part
inline constexpr std::uint8_t kHasPattern = 0x01, kHasDuration = 0x02, kHasStep = 0x04, kHasGrowth = 0x08;
inline constexpr std::uint8_t kHeadBits = kHasPattern | kHasDuration | kHasStep | kHasGrowth;

/// The places of the alternatives of Event::what are the kinds' numbers.
inline constexpr std::size_t kEventKinds = std::variant_size_v<decltype(Event::what)>;
static_assert(kEventKinds == 9,
              "a new kind of event needs a field list in the encoder, the decoder and docs/events.md");

/// Returns the number of the kind `What`.
template <class What, std::size_t kKind = 0>
constexpr std::size_t kind_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<kKind, decltype(Event::what)>, What>)
    return kKind;
  else
    return kind_of<What, kKind + 1>();
}

/// The numbers that grow from one frame to the next with the same pattern. Differences are taken modulo 2^64.
struct FrameCounts {
  std::uint64_t number = 0, version = 0;

  FrameCounts operator+(const FrameCounts& other) const { return {number + other.number, version + other.version}; }
  FrameCounts operator-(const FrameCounts& other) const { return {number - other.number, version - other.version}; }
  bool operator==(const FrameCounts&) const = default;
};

/// The process and the membership epoch in which a part was recorded.
struct EventOrigin {
  std::string process;       ///< as its peers call it: "worker 3"
  std::uint64_t number = 0;  ///< of the process in a trace: workers from 1, servers from 1001
  std::uint64_t epoch = 0;   ///< counts the times that the job has regrouped, as frames are then numbered from 0 again
  Nanoseconds offset{0};     ///< the job's clock minus this process's
};

}  // namespace psring
