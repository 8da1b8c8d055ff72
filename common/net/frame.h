#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/dtype.h>
#include <psring/common/base/range.h>
#include <psring/common/base/text/peer_name.h>

namespace psring::net {

/// A process's role in a job.
enum class Role : std::uint8_t { worker = 0, server = 1, coordinator = 2, agent = 3 };

std::string_view to_string(Role role);

struct Peer {
  Role role = Role::worker;
  std::uint32_t rank = 0;
  friend constexpr auto operator<=>(const Peer&, const Peer&) = default;
};

/// Returns a text such as "server 1".
std::string to_string(Peer peer);
/// Returns the same for events, without work.
PeerName name_of(Peer peer);

/// The type of a data frame. The grammar of the exchange is in docs/wire.md.
enum class FrameType : std::uint8_t {
  hello = 1,       ///< opens a link: payload is the client's nonce
  challenge = 2,   ///< payload is the server's nonce and its proof of the key
  proof = 3,       ///< payload is the client's proof of the key
  accepted = 4,    ///< the link is open
  refused = 5,     ///< the server rejects the link: payload is one line of text
  layout = 6,      ///< payload is the bounded description of all units; answered by layout_ok
  layout_ok = 7,   ///< `version` is the version to continue from; payload is the loss scale there, if any
  initial = 8,     ///< payload replaces the parameters of `range` before the first step
  push = 9,        ///< payload is a gradient of `range`
  push_ack = 10,   ///< answers a push with kWantAck: the gradient's memory is the worker's again
  pull = 11,       ///< requests `range` at `version` or later
  push_pull = 12,  ///< a push, and a pull of the version that the push leads to
  values = 13,     ///< answers pull and push_pull: payload is `range` at `version`
  verdict = 14,    ///< between servers: payload is partial sums to, or total sums from, server 0
  failed = 15,     ///< the request failed: payload is one line of text
  // Between workers. `group` is their group, `step` the operation's number in the group, the payload is `range`.
  all_reduce = 16,
  reduce_scatter = 17,
  all_gather = 18,
  broadcast = 19,
  barrier = 20,
  message = 21,  ///< `step` numbers the messages of the pair
  save = 22,     ///< from worker 0 to servers: write your part of the checkpoint of version `step`
  saved = 23,    ///< answers save: the part is on the disk
  leave = 24,    ///< from a worker to servers: the worker will push nothing more, and no worker has to wait for it
  // Between a server and its follower (server/replication.h).
  replicate = 25,    ///< relays a gradient that a worker pushed; `relayed` and `group` hold its type and its sender
  state = 26,        ///< relays any other frame that changes the server's state, or carries a part of that state
  replicated = 27,   ///< the follower has taken `version` frames
  acknowledge = 28,  ///< for reliable links: acknowledges frames if no other frame can carry the acknowledgement
  // Frames of tables: `unit` counts them behind the units, and the range is one of buckets.
  rows_pull = 29,  ///< requests rows at `version`: payload is their hashed keys, `micro` the elements of the answer
  rows = 30,       ///< answers rows_pull: payload is the rows, in the order of the keys
  rows_push = 31,  ///< payload is the gradients of the rows of the sender's pull of `step`, in its order
  rows_ack = 32,   ///< answers rows_push: the gradients' memory is the worker's again
};

inline constexpr std::uint8_t kFrameTypes = 33;

std::string_view to_string(FrameType type);

/// The encoding of a pushed gradient; see optim::Codec.
enum class Encoding : std::uint8_t { dense = 0, bf16 = 1, int8 = 2, sign = 3, top_k = 4, random_k = 5 };

/// The fixed header in front of every payload. All fields little-endian; layout in docs/wire.md.
struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x47525350;  // "PSRG"
  static constexpr std::uint16_t kWireVersion = 8;
  static constexpr std::uint8_t kWantAck = 1;  ///< flag: a push that wants a push_ack
  static constexpr std::uint8_t kStartUp = 2;  ///< flag: counted as control traffic, not as payload of the exchange
  static constexpr std::uint8_t kProbe = 4;    ///< flag: reports the operation that a worker waits in; has no payload
  static constexpr std::uint8_t kCopy = 16;    ///< flag: a push that the server copies, and acknowledges at once
  static constexpr std::uint8_t kSkipped = 8;  ///< flag: the update to this version was skipped, and the values are
                                               ///< unchanged

  std::uint32_t magic = kMagic;
  std::uint16_t wire_version = kWireVersion;
  FrameType type = FrameType::hello;
  DType dtype = DType::f32;
  Encoding encoding = Encoding::dense;
  std::uint8_t flags = 0;
  Role sender_role = Role::worker;
  FrameType relayed = FrameType{};  ///< of replicate and state: the type of the relayed frame; 0: none
  std::uint32_t sender_rank = 0;
  std::uint64_t job = 0;
  std::uint32_t group = 0;        ///< group of workers; of replicate and state: the rank of the relayed frame's sender
  std::uint32_t life = 0;         ///< of a reliable link: the incarnation that the frame is addressed to
  std::uint32_t incarnation = 0;  ///< of the sender: its number of restarts
  std::uint32_t micro = 0;
  std::uint64_t sequence = 0;  ///< number of the sender's frame on this link, from 0
  std::uint64_t step = 0;
  std::uint32_t unit = 0;
  std::uint32_t staleness = 0;  ///< of values and push_ack: staleness of the receiver's last gradient of the range
  std::uint64_t begin = 0;      ///< first element of the range in the unit
  std::uint64_t end = 0;
  std::uint64_t version = 0;
  std::uint64_t dest = 0;  ///< destination of the answer, as marked by the requester; the answer echoes it; 0: none
  std::uint64_t payload_bytes = 0;
  // For reliable links (common/net/sim/reliable_link.h); 0 on other links.
  std::uint32_t place = 0;  ///< the frame's number on the link
  std::uint32_t taken = 0;  ///< acknowledges all frames of the other direction before this number,
  std::uint32_t later = 0;  ///< and frame taken + 1 + i if bit i is set
  std::uint32_t check = 0;  ///< CRC32C of header and payload, without the fields that transports fill in
  std::uint32_t lag = 0;    ///< of values and push_ack: the receiver's lag when that gradient was applied
  std::uint32_t crc = 0;    ///< CRC32C of the first 124 bytes

  Range range() const { return {begin, end}; }
  void set_range(Range range) { begin = range.begin, end = range.end; }
  Peer sender() const { return {sender_role, sender_rank}; }
};

inline constexpr std::size_t kHeaderBytes = 128;
static_assert(sizeof(FrameHeader) == kHeaderBytes && std::endian::native == std::endian::little);

/// True for frames whose answer holds values, which may be stored straight into memory of the asker (`dest`).
constexpr bool asks_for_values(const FrameHeader& header) {
  return header.type == FrameType::pull || header.type == FrameType::push_pull || header.type == FrameType::rows_pull;
}
/// The elements of that answer.
constexpr std::size_t answered_elements(const FrameHeader& header) {
  return header.type == FrameType::rows_pull ? header.micro : header.range().size();
}

/// The largest payload of a frame. Receivers reject larger frames before they allocate memory.
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{16} << 20;

/// Encodes a header and sets its checksum. This is the only encoder.
std::array<std::byte, kHeaderBytes> encode(const FrameHeader& header);

/// Decodes a header. This is the only decoder. Throws protocol, naming the fault, if the bytes are not a complete and
/// valid header: wrong length, magic, wire version or checksum, an unknown type, dtype, encoding or role, begin > end,
/// or a payload above kMaxPayloadBytes.
FrameHeader decode(std::span<const std::byte> bytes);

}  // namespace psring::net
