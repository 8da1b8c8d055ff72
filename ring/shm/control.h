#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <psring/common/base/range.h>
#include <psring/common/device/pages.h>
#include <psring/ring/call.h>
#include <psring/ring/shm/shares.h>

namespace psring::ring {

// The control file, through which the ranks of a host tell each other which operations they have called and how far
// they are:
//
//   file   = group x groups()               group 0 is the world; splits take the others, in order
//   group  = rank x (ranks of the world)
//   rank   = ShmGroupHeader  ShmRank  eager buffer x kShmPosts  counters  mailbox x (ranks of the world)
//
// Subgroups without a common rank may have the same number: each uses the places of its own ranks, and the header of
// its first rank. Every word has one writer, except `bell`, the header and the counters that a rank updates for another
// rank. The words that a rank writes for others lie on cache lines of their own.
inline constexpr std::size_t kShmPosts = 32;         ///< operations that a rank may be ahead of the slowest rank
inline constexpr std::size_t kShmEagerBytes = 4096;  ///< of an eager buffer, which holds a copy of a vector
inline constexpr std::size_t kShmCopiedBytes = 512;  ///< vectors up to this size are always sent eagerly
inline constexpr std::size_t kShmFileBytes =
    0x10'0000'0000;  ///< of the control file, about; unused groups cost only addresses
inline constexpr std::size_t kShmSliceBytes = 262144;  ///< of a slice of a vector that passes through staging memory
/// The same with more ranks than processors: a barrier then takes several changes of the running process.
inline constexpr std::size_t kShmCrowdedSliceBytes = 1048576;
inline constexpr std::size_t kShmShareBytes = 65536;  ///< of a slice that a rank claims, at least
inline constexpr std::size_t kShmTextBytes = 512;

/// The kind of a counted byte: the number of a Collective, or control traffic.
inline constexpr std::size_t kShmControl = 7;
inline constexpr std::size_t kShmKinds = 8;

/// An operation as a rank calls it.
struct alignas(64) ShmPost {
  std::atomic<std::uint64_t> number{0};  ///< 1 + the operation's number; written last
  Call call;
  std::uint64_t offset = 0;  ///< of the vector, or of its staging memory, in the caller's arena
  bool staged = false;
  bool crowded = false;  ///< the caller knows of more ranks than processors
  /// A small vector itself. A few numbers share the first cache line. More numbers begin a line, so that no wide load
  /// or store crosses two lines. Still larger vectors lie in an eager buffer: after a few lines in a row the processor
  /// prefetches the next line, which would be the next post while its owner writes it.
  alignas(8) std::byte few[16] = {};
  alignas(64) std::byte small[128] = {};
};

/// The progress of one rank in one group.
struct ShmRank {
  alignas(64) std::atomic<std::uint64_t> ticks{0};  ///< phases of operations that the rank has finished
  std::atomic<std::uint64_t> completed{0};          ///< operations that the rank has finished
  std::atomic<std::uint64_t> holds{0};              ///< 1 + the number of the operation whose slice it has claimed
  alignas(64) std::atomic<std::uint32_t> bell{0};   ///< futex: any rank increments it and wakes the owner
  std::atomic<std::uint32_t> sleeping{0};
  std::atomic<std::uint32_t> fences{0};  ///< 1: before it sleeps, the rank fences all processes (process_fence.h)
  ShmPost posts[kShmPosts];
};

/// Messages from one rank to another, one at a time.
struct ShmMailbox {
  ShmPost post;                                     ///< written by the sender
  alignas(64) std::atomic<std::uint64_t> taken{0};  ///< messages that the receiver has taken
};

struct ShmGroupHeader {
  alignas(64) ShmShares shares;
  alignas(64) std::atomic<std::uint32_t> broken{0};  ///< 1: a rank writes the error; 2: kind and text are complete
  std::uint32_t kind = 0;
  char text[kShmTextBytes] = {};
};

/// The places of one group's data in the control file.
class ShmControl {
 public:
  /// The size of a control file for a world.
  static std::size_t file_bytes(std::size_t ranks) { return groups(ranks) * group_bytes(ranks); }
  /// The number of groups for which the file of a world has room: the world, and all subgroups that it ever has.
  static std::size_t groups(std::size_t ranks) {
    return std::clamp<std::size_t>(kShmFileBytes / group_bytes(ranks), 512, 16384);
  }

  /// `world`: the number of ranks in the world; `members`: the ranks of the world that form the group.
  ShmControl(std::byte* file, std::size_t world, std::size_t group, std::vector<std::size_t> members)
      : base_(file + group * group_bytes(world)), ranks_(world), members_(std::move(members)) {}

  ShmGroupHeader& header() const { return *reinterpret_cast<ShmGroupHeader*>(place(0)); }
  ShmRank& rank(std::size_t of) const { return *reinterpret_cast<ShmRank*>(place(of) + header_bytes()); }
  ShmPost& post(std::size_t of, std::uint64_t number) const { return rank(of).posts[number % kShmPosts]; }
  std::byte* eager_buffer(std::size_t of, std::uint64_t number) const {
    return reinterpret_cast<std::byte*>(&rank(of)) + sizeof(ShmRank) + number % kShmPosts * kShmEagerBytes;
  }
  /// Bytes that rank `of` has read from the memory of rank `other`, and stored there, by kind.
  std::atomic<std::uint64_t>& read_bytes(std::size_t of, std::size_t other, std::size_t kind) const {
    return counters(of)[2 * (members_[other] * kShmKinds + kind)];
  }
  std::atomic<std::uint64_t>& stored_bytes(std::size_t of, std::size_t other, std::size_t kind) const {
    return counters(of)[2 * (members_[other] * kShmKinds + kind) + 1];
  }
  ShmMailbox& mailbox(std::size_t from, std::size_t to) const {
    return *reinterpret_cast<ShmMailbox*>(mailboxes(from) + members_[to] * mailbox_bytes());
  }
  std::byte* mailbox_buffer(std::size_t from, std::size_t to) const {
    return mailboxes(from) + members_[to] * mailbox_bytes() + sizeof(ShmMailbox);
  }

 private:
  static constexpr std::size_t header_bytes() { return round_up(sizeof(ShmGroupHeader), 64); }
  static constexpr std::size_t counter_bytes(std::size_t ranks) { return round_up(ranks * kShmKinds * 16, 64); }
  static constexpr std::size_t mailbox_bytes() { return sizeof(ShmMailbox) + kShmEagerBytes; }
  static constexpr std::size_t rank_bytes(std::size_t ranks) {
    return header_bytes() + sizeof(ShmRank) + kShmPosts * kShmEagerBytes + counter_bytes(ranks) +
           ranks * mailbox_bytes();
  }
  static constexpr std::size_t group_bytes(std::size_t ranks) {
    return round_up(ranks * rank_bytes(ranks), kLargestPage);
  }
  std::byte* place(std::size_t of) const { return base_ + members_[of] * rank_bytes(ranks_); }
  std::byte* after_eager_buffers(std::size_t of) const { return eager_buffer(of, 0) + kShmPosts * kShmEagerBytes; }
  std::atomic<std::uint64_t>* counters(std::size_t of) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(after_eager_buffers(of));
  }
  std::byte* mailboxes(std::size_t of) const { return after_eager_buffers(of) + counter_bytes(ranks_); }

  std::byte* base_;
  std::size_t ranks_;
  std::vector<std::size_t> members_;
};

}  // namespace psring::ring
