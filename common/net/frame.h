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

namespace psring::net {

/// A process's part in a job.
enum class Role : std::uint8_t { worker = 0, server = 1, coordinator = 2, agent = 3 };

std::string_view to_string(Role role);

struct Peer {
  Role role = Role::worker;
  std::uint32_t rank = 0;
  friend constexpr auto operator<=>(const Peer&, const Peer&) = default;
};

/// "server 1"
std::string to_string(Peer peer);

/// What a data frame says. The grammar of the exchange is in docs/wire.md.
enum class FrameType : std::uint8_t {
  hello = 1,       ///< opens a link: payload is the client's nonce
  challenge = 2,   ///< payload is the server's nonce and its proof of the key
  proof = 3,       ///< payload is the client's proof of the key
  accepted = 4,    ///< the link is open
  refused = 5,     ///< the link is closed: payload is one line of text
  layout = 6,      ///< payload is the bounded description of all units; answered by layout_ok
  layout_ok = 7,   ///< `version` is where the worker goes on; payload is how losses are scaled there, if they are
  initial = 8,     ///< payload replaces the parameters of `range` before the first step
  push = 9,        ///< payload is a gradient of `range`
  push_ack = 10,   ///< answers a push that asked for it: it is safely taken
  pull = 11,       ///< asks for `range` at `version` or later
  push_pull = 12,  ///< a push and the pull of the version that it leads to
  values = 13,     ///< answers pull and push_pull: payload is `range` at `version`
  verdict = 14,    ///< between servers: payload is partial sums to, or total sums from, server 0
  failed = 15,     ///< the request cannot be done: payload is one line of text
  // Between workers; `group` is theirs, `step` the operation's number there, the payload its `range`.
  all_reduce = 16,
  reduce_scatter = 17,
  all_gather = 18,
  broadcast = 19,
  barrier = 20,
  message = 21,  ///< `step` counts those of the pair
  save = 22,     ///< from worker 0 to servers: write your part of the checkpoint of version `step`
  saved = 23,    ///< answers it: the part is on the disk
  leave = 24,    ///< from a worker to servers: it pushes nothing more, and nobody waits for it
  // Between a server and its follower (server/replication.h).
  replicate = 25,    ///< a gradient that a worker pushed, passed on: `relayed` and `group` say as what, and of whom
  state = 26,        ///< the same of any other frame that changes what the server has; or a part of what it has
  replicated = 27,   ///< the follower has taken `version` frames
  acknowledge = 28,  ///< of a reliable link: tells what has arrived, where no other frame does
};

inline constexpr std::uint8_t kFrameTypes = 29;

std::string_view to_string(FrameType type);

/// How a pushed gradient is written; see optim::Codec.
enum class Encoding : std::uint8_t { dense = 0, bf16 = 1, int8 = 2, sign = 3, top_k = 4, random_k = 5 };

/// The fixed header in front of every payload. All fields little-endian; layout in docs/wire.md.
struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x47525350;  // "PSRG"
  static constexpr std::uint16_t kWireVersion = 5;
  static constexpr std::uint8_t kWantAck = 1;  ///< flag: a push that wants a push_ack
  static constexpr std::uint8_t kStartUp = 2;  ///< flag: counted as control, not as the exchange's payload
  static constexpr std::uint8_t kProbe = 4;    ///< flag: tells what a worker waits in, and carries nothing
  static constexpr std::uint8_t kSkipped = 8;  ///< flag: values that the update to their version left as they were

  std::uint32_t magic = kMagic;
  std::uint16_t wire_version = kWireVersion;
  FrameType type = FrameType::hello;
  DType dtype = DType::f32;
  Encoding encoding = Encoding::dense;
  std::uint8_t flags = 0;
  Role sender_role = Role::worker;
  FrameType relayed = FrameType{};  ///< of replicate and state: what is passed on; 0: nothing
  std::uint32_t sender_rank = 0;
  std::uint64_t job = 0;
  std::uint32_t group = 0;        ///< of workers; of replicate and state: the rank of who sent what is passed on
  std::uint32_t life = 0;         ///< of a reliable link: the incarnation that the frame is for
  std::uint32_t incarnation = 0;  ///< of the sender: counts its restarts
  std::uint32_t micro = 0;
  std::uint64_t sequence = 0;  ///< of the sender on this link, from 0
  std::uint64_t step = 0;
  std::uint32_t unit = 0;
  std::uint32_t staleness = 0;  ///< of values and push_ack: what the asker's last gradient of the range had
  std::uint64_t begin = 0;      ///< elements of the unit
  std::uint64_t end = 0;
  std::uint64_t version = 0;
  std::uint64_t dest = 0;  ///< the asker's own mark for where the answer goes; an answer echoes it. 0: none
  std::uint64_t payload_bytes = 0;
  // Of a reliable link (common/net/sim/reliable_link.h); 0 on others.
  std::uint32_t place = 0;  ///< the frame's number on the link
  std::uint32_t taken = 0;  ///< frames that have arrived the other way: all before this number,
  std::uint32_t later = 0;  ///< and taken + 1 + i where bit i is set
  std::uint32_t check = 0;  ///< CRC32C of header and payload, without what transports fill in
  std::uint32_t lag = 0;    ///< of values and push_ack: what the asker had when that gradient was applied
  std::uint32_t crc = 0;    ///< CRC32C of the 124 bytes before it

  Range range() const { return {begin, end}; }
  void set_range(Range range) { begin = range.begin, end = range.end; }
  Peer sender() const { return {sender_role, sender_rank}; }
};

inline constexpr std::size_t kHeaderBytes = 128;
static_assert(sizeof(FrameHeader) == kHeaderBytes && std::endian::native == std::endian::little);

/// The largest payload of one frame; a receiver refuses more before it allocates.
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{16} << 20;

/// The one encoder: sets the checksum.
std::array<std::byte, kHeaderBytes> encode(const FrameHeader& header);

/// The one decoder. Throws protocol, saying what is wrong, where the bytes are not a whole and valid
/// header: length, magic, wire version, checksum, an unknown type, dtype, encoding or role, begin > end,
/// or a payload above kMaxPayloadBytes.
FrameHeader decode(std::span<const std::byte> bytes);

/// CRC32C (Castagnoli), as in RFC 3720. `before`: that of the bytes before these.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace psring::net
