#include <array>
#include <cstring>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/common/net/frame.h>

namespace psring::net {

std::string_view to_string(Role role) {
  static constexpr std::array<std::string_view, 4> kNames = {"worker", "server", "coordinator", "agent"};
  return name_in(kNames, role);
}

std::string to_string(Peer peer) { return name_of(peer).text(); }

PeerName name_of(Peer peer) { return {to_string(peer.role), peer.rank}; }

std::string_view to_string(FrameType type) {
  static constexpr std::array<std::string_view, kFrameTypes> kNames = {
      "?",           "hello",     "challenge",  "proof",          "accepted",   "refused",   "layout",
      "layout_ok",   "initial",   "push",       "push_ack",       "pull",       "push_pull", "values",
      "verdict",     "failed",    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier",
      "message",     "save",      "saved",      "leave",          "replicate",  "state",     "replicated",
      "acknowledge", "rows_pull", "rows",       "rows_push",      "rows_ack"};
  return name_in(kNames, type);
}

std::array<std::byte, kHeaderBytes> encode(const FrameHeader& header) {
  std::array<std::byte, kHeaderBytes> bytes;
  std::memcpy(bytes.data(), &header, kHeaderBytes);
  const std::uint32_t crc = crc32c(std::span(bytes).first(kHeaderBytes - 4));
  std::memcpy(bytes.data() + kHeaderBytes - 4, &crc, 4);
  return bytes;
}

FrameHeader decode(std::span<const std::byte> bytes) {
  if (bytes.size() != kHeaderBytes)
    fail(ErrorKind::protocol, "frame header of {} bytes, expected {}", bytes.size(), kHeaderBytes);
  // Check enumerations as raw numbers: an enum object with an invalid value must not exist.
  const auto raw = [&](std::size_t offset) { return std::to_integer<std::uint8_t>(bytes[offset]); };
  std::uint32_t magic = 0;
  std::uint16_t wire_version = 0;
  std::uint32_t crc = 0;
  std::memcpy(&magic, bytes.data(), 4);
  std::memcpy(&wire_version, bytes.data() + 4, 2);
  std::memcpy(&crc, bytes.data() + kHeaderBytes - 4, 4);
  if (magic != FrameHeader::kMagic) fail(ErrorKind::protocol, "not a psring frame (magic {:08x})", magic);
  if (wire_version != FrameHeader::kWireVersion)
    fail(ErrorKind::protocol,
         "the peer uses wire version {}, this process {}: both must run the same version of psring", wire_version,
         FrameHeader::kWireVersion);
  if (crc != crc32c(bytes.first(kHeaderBytes - 4))) fail(ErrorKind::protocol, "frame header with a wrong checksum");
  const std::uint8_t type = raw(offsetof(FrameHeader, type));
  if (type == 0 || type >= kFrameTypes) fail(ErrorKind::protocol, "unknown frame type {}", type);
  const std::uint8_t relayed = raw(offsetof(FrameHeader, relayed));
  if (relayed >= kFrameTypes) fail(ErrorKind::protocol, "unknown type {} of a relayed frame", relayed);
  const std::uint8_t dtype = raw(offsetof(FrameHeader, dtype));
  if (dtype >= kDTypes) fail(ErrorKind::protocol, "unknown element type {}", dtype);
  const std::uint8_t encoding = raw(offsetof(FrameHeader, encoding));
  if (encoding > static_cast<std::uint8_t>(Encoding::random_k))
    fail(ErrorKind::protocol, "unknown encoding {}", encoding);
  const std::uint8_t role = raw(offsetof(FrameHeader, sender_role));
  if (role > static_cast<std::uint8_t>(Role::agent)) fail(ErrorKind::protocol, "unknown role {}", role);
  FrameHeader header;
  std::memcpy(&header, bytes.data(), kHeaderBytes);
  if (header.begin > header.end)
    fail(ErrorKind::protocol, "range [{}, {}) ends before it begins", header.begin, header.end);
  if (header.payload_bytes > kMaxPayloadBytes)
    fail(ErrorKind::protocol, "payload of {} bytes, at most {} are allowed", header.payload_bytes, kMaxPayloadBytes);
  return header;
}

}  // namespace psring::net
