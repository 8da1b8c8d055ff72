#include <bit>
#include <string_view>

#include <psring/common/base/crc32c.h>
#include <psring/view/tensorboard/event_records.h>

namespace psring::view {
namespace {

constexpr std::string_view kVersion = "brain.Event:2";
constexpr std::uint64_t kSessionStart = 1;  // SessionLog.START

/// The encodings of protobuf's values that an Event uses.
enum Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Number>
void put_fixed(std::string& out, Number number) {
  for (std::size_t byte = 0; byte < sizeof number; ++byte) out += static_cast<char>(number >> (8 * byte));
}

void put_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}

void put_key(std::string& out, unsigned field, Wire wire) { put_varint(out, field << 3 | static_cast<unsigned>(wire)); }

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

/// The fields that all events have.
std::string event_of(double wall_time, std::uint64_t step) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(wall_time));
  if (step == 0) return event;  // the default is not written
  put_key(event, 2, kVarint);
  put_varint(event, step);
  return event;
}

std::uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

std::string record_of(std::string_view event) {
  std::string record;
  put_fixed(record, std::uint64_t{event.size()});
  put_fixed(record, masked_checksum(record));
  record += event;
  put_fixed(record, masked_checksum(event));
  return record;
}

}  // namespace

std::string version_record(double wall_time) {
  std::string event = event_of(wall_time, 0);
  put_bytes(event, 3, kVersion);
  return record_of(event);
}

std::string start_record(double wall_time, std::uint64_t step) {
  std::string log;
  put_key(log, 1, kVarint);
  put_varint(log, kSessionStart);
  std::string event = event_of(wall_time, step);
  put_bytes(event, 7, log);
  return record_of(event);
}

std::string scalars_record(double wall_time, std::uint64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, kFixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  std::string event = event_of(wall_time, step);
  put_bytes(event, 5, summary);
  return record_of(event);
}

}  // namespace psring::view
