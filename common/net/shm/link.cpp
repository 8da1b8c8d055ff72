#include <algorithm>
#include <atomic>
#include <cstring>

#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/mapping.h>
#include <psring/common/net/shm/link.h>

namespace psring::net {
namespace {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

constexpr std::size_t kLine = 64;
constexpr std::size_t kHeaderWords = kHeaderBytes / sizeof(std::uint64_t);
constexpr std::size_t kSmallCopy = 4096;

enum Side : std::size_t { kClient = 0, kServer = 1 };
enum PayloadPlace : std::uint64_t { kNone = 0, kArena = 1, kBounce = 2 };
enum Wants : std::uint64_t { kNothing = 0, kFrames = 1, kSpace = 2 };

struct alignas(kLine) Entry {
  Word header[kHeaderWords];
  Word place;
  Word position;  ///< arena: the offset; bounce: bytes since the link began; the remainder modulo the region's size is
                  ///< the place
};

struct Direction {
  alignas(kLine) Word head;  ///< entries written so far; the sender writes it
  alignas(kLine) Word tail;  ///< entries taken so far; the receiver writes it
  alignas(kLine) Word bounce_tail;
  Entry entries[ShmLink::kEntries];
};

struct Rings {
  struct alignas(kLine) {
    Word value;
  } wants[2];  ///< events that a sleeping side waits for: the other side clears the word and rings the bell
  Direction towards[2];
  alignas(4096) std::byte bounce[2][ShmLink::kBounceBytes];
};

/// Throws unless fd is an eventfd: writing to any other file could block, or end the process.
void check_bell(const Fd& fd) {
  char target[64] = {};
  const std::string link = fmt::format("/proc/self/fd/{}", fd.get());
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0 || std::strcmp(target, "anon_inode:[eventfd]") != 0)
    fail(ErrorKind::protocol, "not an eventfd");
}

/// Signals `event` to a peer that waits for it. No wake-up is lost, because both sides write and then read in
/// sequentially consistent order: either the sleeper sees the event, or the signaller sees that the sleeper waits.
void signal_event(Word& wants, std::uint64_t event, const Fd& bell) {
  if ((wants.load(std::memory_order_seq_cst) & event) == 0) return;
  wants.store(kNothing, std::memory_order_seq_cst);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell.get(), &one, sizeof one);  // a full counter has already rung
}

}  // namespace

/// Resources that live as long as the link or any of its messages.
struct ShmLink::Memory {
  Memory(Side side, std::array<Fd, kFiles> passed, std::span<std::byte> own_arena)
      : me(side),
        files(std::move(passed)),
        rings_map(files[1], sizeof(Rings)),
        peer_arena(own_arena.empty() ? std::make_unique<Mapping>(files[0], checked_size(files[0])) : nullptr),
        arena(peer_arena ? peer_arena->bytes() : own_arena),
        rings(*reinterpret_cast<Rings*>(rings_map.data())) {}

  Side other() const { return me == kClient ? kServer : kClient; }
  Direction& out() const { return rings.towards[other()]; }
  Direction& in() const { return rings.towards[me]; }
  std::byte* out_bounce() const { return rings.bounce[other()]; }
  std::byte* in_bounce() const { return rings.bounce[me]; }
  const Fd& bell(Side side) const { return files[side == kServer ? 2 : 3]; }
  void tell_peer(std::uint64_t event) const { signal_event(rings.wants[other()].value, event, bell(other())); }

  const Side me;
  const std::array<Fd, kFiles> files;
  const Mapping rings_map;
  const std::unique_ptr<Mapping> peer_arena;  ///< on the server only
  const std::span<std::byte> arena;
  Rings& rings;
};

namespace {

std::array<Fd, ShmLink::kFiles> make_files(const Arena& arena) {
  check(arena.fd() >= 0, "a link needs a shared arena");
  return {Fd(::dup(arena.fd())), make_memory_file("psring-rings", sizeof(Rings)), make_eventfd(), make_eventfd()};
}

std::array<Fd, ShmLink::kFiles> checked_files(std::vector<Fd> files) {
  if (files.size() != ShmLink::kFiles)
    fail(ErrorKind::protocol, "received {} descriptors, expected {}", files.size(), ShmLink::kFiles);
  if (checked_size(files[0]) == 0) fail(ErrorKind::protocol, "an arena of 0 bytes");
  if (checked_size(files[1]) != sizeof(Rings)) fail(ErrorKind::protocol, "the rings file has a wrong size");
  check_bell(files[2]);
  check_bell(files[3]);
  return {std::move(files[0]), std::move(files[1]), std::move(files[2]), std::move(files[3])};
}

}  // namespace

ShmLink::ShmLink(Peer self, Peer server, Arena& arena)
    : self_(self),
      peer_(server),
      memory_(std::make_shared<Memory>(kClient, make_files(arena), std::span(arena.base(), arena.capacity()))) {}

ShmLink::ShmLink(Peer self, Peer client, std::vector<Fd> files)
    : self_(self),
      peer_(client),
      memory_(std::make_shared<Memory>(kServer, checked_files(std::move(files)), std::span<std::byte>())) {}

ShmLink::~ShmLink() = default;

std::array<int, ShmLink::kFiles> ShmLink::files() const {
  const auto& files = memory_->files;
  return {files[0].get(), files[1].get(), files[2].get(), files[3].get()};
}

const Fd& ShmLink::bell() const { return memory_->bell(memory_->me); }

void ShmLink::send(const FrameHeader& header, std::span<const std::byte> payload) {
  if (queue_.empty() && put(header, payload)) return;
  Queued queued{header, payload, {}};
  if (payload.size() <= kSmallCopy) {
    queued.copy.assign(payload.begin(), payload.end());
    queued.payload = queued.copy;
  }
  queue_.push_back(std::move(queued));
  queued_bytes_ += payload.size();
}

/// Sends queued frames while there is room. Returns whether any was sent.
bool ShmLink::flush() {
  bool any = false;
  for (; !queue_.empty() && put(queue_.front().header, queue_.front().payload); any = true) {
    queued_bytes_ -= queue_.front().payload.size();
    queue_.pop_front();
  }
  return any;
}

/// Memory order: an entry's words and its payload are written before `head`, and read after it; `tail` and
/// `bounce_tail` are stored after the words and the payload have been read. So the words themselves are relaxed. The
/// three counters are sequentially consistent, because signal_event and arm need it.
bool ShmLink::put(const FrameHeader& header, std::span<const std::byte> payload) {
  Direction& out = memory_->out();
  if (head_ - seen_tail_ == kEntries) {
    const std::uint64_t tail = out.tail.load(std::memory_order_seq_cst);
    if (tail < seen_tail_ || tail > head_) fail(ErrorKind::protocol, "the peer wrote an invalid tail of a ring");
    seen_tail_ = tail;
    if (head_ - seen_tail_ == kEntries) return false;
  }
  std::uint64_t place = kNone;
  std::uint64_t position = 0;
  const auto& arena = memory_->arena;
  const auto offset = reinterpret_cast<std::uintptr_t>(payload.data()) - reinterpret_cast<std::uintptr_t>(arena.data());
  const bool aligned = offset % size_bytes(header.dtype) == 0;
  if (!payload.empty() && aligned && offset < arena.size() && payload.size() <= arena.size() - offset) {
    place = kArena;
    position = offset;
  } else if (!payload.empty()) {
    const auto found = find_bounce(payload.size());
    if (!found) return false;
    place = kBounce;
    position = *found;
    std::memcpy(memory_->out_bounce() + position % kBounceBytes, payload.data(), payload.size());
  }
  Entry& entry = out.entries[head_ % kEntries];
  const auto words = std::bit_cast<std::array<std::uint64_t, kHeaderWords>>(encode(header));
  for (std::size_t i = 0; i < kHeaderWords; ++i) entry.header[i].store(words[i], std::memory_order_relaxed);
  entry.place.store(place, std::memory_order_relaxed);
  entry.position.store(position, std::memory_order_relaxed);
  out.head.store(++head_, std::memory_order_seq_cst);
  memory_->tell_peer(kFrames);
  return true;
}

/// Returns a contiguous place for `bytes` in the bounce region, or nothing while too much of it is in use.
std::optional<std::uint64_t> ShmLink::find_bounce(std::size_t bytes) {
  const std::uint64_t tail = memory_->out().bounce_tail.load(std::memory_order_seq_cst);
  if (tail > bounce_head_) fail(ErrorKind::protocol, "the peer wrote an invalid tail of a bounce region");
  std::uint64_t position = round_up(bounce_head_, kLine);
  // Restart at the pages that are already mapped.
  if (tail == bounce_head_) bounce_floor_ = position = round_up(position, kBounceBytes);
  if (position % kBounceBytes + bytes > kBounceBytes) position = round_up(position, kBounceBytes);
  if (position + bytes - std::max(tail, bounce_floor_) > kBounceBytes) return std::nullopt;
  bounce_head_ = position + bytes;
  return position;
}

std::optional<Message> ShmLink::try_receive() {
  if (!queue_.empty()) flush();
  Direction& in = memory_->in();
  const std::uint64_t head = in.head.load(std::memory_order_acquire);
  if (head == tail_) return std::nullopt;
  if (head - tail_ > kEntries) fail(ErrorKind::protocol, "the peer wrote an invalid head of a ring");
  // Read each word once: later writes of the peer must not change checked values.
  const Entry& entry = in.entries[tail_ % kEntries];
  std::array<std::uint64_t, kHeaderWords> words;
  for (std::size_t i = 0; i < kHeaderWords; ++i) words[i] = entry.header[i].load(std::memory_order_relaxed);
  const std::uint64_t place = entry.place.load(std::memory_order_relaxed);
  const std::uint64_t position = entry.position.load(std::memory_order_relaxed);
  in.tail.store(++tail_, std::memory_order_seq_cst);
  memory_->tell_peer(kSpace);
  return resolve(decode(std::as_bytes(std::span(words))), place, position);
}

Message ShmLink::resolve(const FrameHeader& header, std::uint64_t place, std::uint64_t position) {
  if (header.sender() != peer_) fail(ErrorKind::protocol, "a frame claims to come from {}", to_string(header.sender()));
  const std::size_t bytes = header.payload_bytes;
  const auto& arena = memory_->arena;
  Message message{header, {}, reply_space(header), memory_, memory_};
  if (place == kNone && bytes == 0) return message;
  const bool aligned = position % (place == kBounce ? kLine : size_bytes(header.dtype)) == 0;
  if (place == kArena && aligned && bytes > 0 && position < arena.size() && bytes <= arena.size() - position) {
    message.payload = arena.subspan(position, bytes);
    return message;
  }
  if (place != kBounce || !aligned || bytes == 0 || position < bounce_taken_ ||
      position - bounce_taken_ > 2 * kBounceBytes || position % kBounceBytes + bytes > kBounceBytes)
    fail(ErrorKind::protocol, "a payload of {} bytes lies outside of the shared memory", bytes);
  const std::shared_ptr<std::byte> block = pool_->take(bytes);
  std::memcpy(block.get(), memory_->in_bounce() + position % kBounceBytes, bytes);
  bounce_taken_ = position + bytes;
  memory_->in().bounce_tail.store(bounce_taken_, std::memory_order_seq_cst);
  memory_->tell_peer(kSpace);
  message.payload = {block.get(), bytes};
  message.holder = block;
  return message;
}

/// Returns the memory in the client's arena, as mapped by the server, into which the answer to a pull may be stored.
std::span<std::byte> ShmLink::reply_space(const FrameHeader& header) const {
  if (memory_->me != kServer || !asks_for_values(header) || header.dest == 0) return {};
  const std::size_t offset = header.dest - 1;
  const std::size_t elements = answered_elements(header);
  const std::size_t capacity = memory_->arena.size();
  if (elements > kMaxPayloadBytes || offset > capacity || offset % size_bytes(header.dtype) != 0 ||
      elements * size_bytes(header.dtype) > capacity - offset)
    fail(ErrorKind::protocol, "the place for an answer lies outside of the shared memory");
  return memory_->arena.subspan(offset, elements * size_bytes(header.dtype));
}

bool ShmLink::arm() {
  Word& wants = memory_->rings.wants[memory_->me].value;
  wants.store(kFrames | (queue_.empty() ? kNothing : kSpace), std::memory_order_seq_cst);
  const bool frames = memory_->in().head.load(std::memory_order_seq_cst) != tail_;
  if (!frames && !flush()) return true;
  wants.store(kNothing, std::memory_order_seq_cst);
  return false;
}

}  // namespace psring::net
