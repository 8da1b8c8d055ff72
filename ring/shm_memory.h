#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <psring/common/base/fd.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/mapping.h>
#include <psring/ring/call.h>

namespace psring::ring {

/// What ranks of one host share, as one of them sees it: everybody's arena, and a control file through which they
/// tell each other what is ready. All of it is memory of processes that proved the job's key.
struct ShmWorld {
  std::size_t rank = 0;
  std::shared_ptr<Arena> arena;                          ///< this rank's
  std::vector<std::shared_ptr<const Mapping>> mappings;  ///< of the others' arenas, by rank; none for this rank
  std::shared_ptr<const Mapping> control;
  std::vector<std::size_t> workers = {};  ///< which of the job's workers each rank is; none: the one of its number

  std::size_t worker(std::size_t of) const { return workers.empty() ? of : workers[of]; }
  std::size_t size() const { return mappings.size(); }
  /// Where another rank's arena lies here, or this one's.
  std::byte* base(std::size_t of) const { return of == rank ? arena->base() : mappings[of]->data(); }
};

/// The control file: for each group, and each rank of the world, a header, a ShmRank, its slots, its counters and its
/// mailboxes. Group 0 is the world; `split` takes the others, in order. Subgroups without a common rank may have the
/// same number: each uses the places of its own ranks, and the header of its first.
///
/// Every word has one writer, but for `bell`, the header's and the counters of what was moved for somebody. What a rank
/// writes for others lies on cache lines of its own.
inline constexpr std::size_t kShmPosts = 32;           ///< operations that a rank may be ahead of the slowest
inline constexpr std::size_t kShmSlotBytes = 4096;     ///< of a rank's place in the control file for a vector
inline constexpr std::size_t kShmCopiedBytes = 512;    ///< vectors up to this size are copied, wherever they lie
inline constexpr std::size_t kShmGroups = 64;          ///< world and subgroups
inline constexpr std::size_t kShmSliceBytes = 262144;  ///< of a vector that lies outside of the arena, at a time
inline constexpr std::size_t kShmShareBytes = 65536;   ///< of the vectors that are shared out slice by slice, at least
inline constexpr std::size_t kShmArenaBytes = std::size_t{64} << 20;  ///< of an arena, for the groups' own use
inline constexpr std::size_t kShmTextBytes = 512;
inline constexpr std::size_t kShmKinds = 7;  ///< of Collective

/// An operation as a rank calls it.
struct alignas(64) ShmPost {
  std::atomic<std::uint64_t> number{0};  ///< 1 + the operation's, written last
  Call call;
  std::uint64_t offset = 0;  ///< of the vector in the caller's arena, or of its staging
  bool staged = false;
  bool crowded = false;  ///< the caller knows of more ranks than processors
  /// A vector that travels here. A few numbers share the first cache line; more begin a line, so that no wide load or
  /// store crosses two. Still more lie in a slot: from a few lines in a row the processor fetches the next unasked,
  /// which would be the next post, under its writer's hands.
  alignas(8) std::byte few[16] = {};
  alignas(64) std::byte small[128] = {};
};

struct ShmRank {
  alignas(64) std::atomic<std::uint64_t> ticks{0};  ///< phases of operations that are behind it
  std::atomic<std::uint64_t> completed{0};          ///< operations that are behind it
  std::atomic<std::uint64_t> holds{0};              ///< 1 + the number of the operation it has claimed a slice of
  alignas(64) std::atomic<std::uint32_t> bell{0};   ///< futex: anybody adds to it and wakes
  std::atomic<std::uint32_t> sleeping{0};
  std::atomic<std::uint32_t> fences{0};  ///< 1: before it sleeps it fences all processes (process_fence.h)
  ShmPost posts[kShmPosts];
};

/// From one rank to another: one message at a time.
struct ShmMailbox {
  ShmPost post;                                     ///< written by the sender
  alignas(64) std::atomic<std::uint64_t> taken{0};  ///< messages, by the receiver
};

/// The slices of the one operation whose ranks share them out: each is done by who claims it. Operations follow one
/// another; whoever comes late to one finds nothing left of it.
class ShmShares {
 public:
  static constexpr std::uint64_t kMost = 0x7ff;

  /// A slice of operation `number`'s `slices` that nobody has claimed, or nothing.
  std::optional<std::uint64_t> claim(std::uint64_t number, std::uint64_t slices) {
    std::uint64_t seen = word_.load(std::memory_order_acquire);
    for (;;) {
      const std::uint64_t now = seen >> kCountBits == tag_of(number) ? seen : tag_of(number) << kCountBits;
      if (behind(seen, number) || claimed(now) == slices) return std::nullopt;
      if (word_.compare_exchange_weak(seen, now + kClaimed, std::memory_order_acq_rel)) return claimed(now);
    }
  }
  /// A slice that was claimed is done: true where it was the last.
  bool finish(std::uint64_t slices) { return ((word_.fetch_add(1, std::memory_order_acq_rel) + 1) & kMost) == slices; }
  /// Are all of them done?
  bool done(std::uint64_t number, std::uint64_t slices) const {
    const std::uint64_t seen = word_.load(std::memory_order_acquire);
    return behind(seen, number) || (seen >> kCountBits == tag_of(number) && (seen & kMost) == slices);
  }

 private:
  static constexpr std::uint64_t kClaimed = kMost + 1;
  static constexpr int kCountBits = 22;  ///< of both counts, below the operation
  static_assert(kClaimed * kClaimed == std::uint64_t{1} << kCountBits);
  static std::uint64_t tag_of(std::uint64_t number) { return (number + 1) & (~std::uint64_t{0} >> kCountBits); }
  static std::uint64_t claimed(std::uint64_t word) { return word / kClaimed & kMost; }
  /// Is a later operation's share out? Operations of other kinds, which have none, may lie between: at a million a
  /// second those of 25 days, before the order of two numbers of 42 bits is lost.
  static bool behind(std::uint64_t word, std::uint64_t number) {
    return static_cast<std::int64_t>(((word >> kCountBits) - tag_of(number)) << kCountBits) > 0;
  }

  std::atomic<std::uint64_t> word_{0};  ///< the operation, slices that are claimed, slices that are done
};

struct ShmGroupHeader {
  alignas(64) ShmShares shares;
  alignas(64) std::atomic<std::uint32_t> broken{0};  ///< 1: somebody writes the text; 2: it is there
  std::uint32_t kind = 0;
  char text[kShmTextBytes] = {};
};

/// Where things lie in a group's part of the control file.
class ShmControl {
 public:
  /// The size of a control file for a world.
  static std::size_t file_bytes(std::size_t ranks) { return kShmGroups * group_bytes(ranks); }

  /// `members`: the ranks of the world that the group is made of.
  ShmControl(std::byte* file, std::size_t world, std::size_t group, std::vector<std::size_t> members)
      : base_(file + group * group_bytes(world)), ranks_(world), members_(std::move(members)) {}

  ShmGroupHeader& header() const { return *reinterpret_cast<ShmGroupHeader*>(place(0)); }
  ShmRank& rank(std::size_t of) const { return *reinterpret_cast<ShmRank*>(place(of) + header_bytes()); }
  std::byte* slot(std::size_t of, std::uint64_t number) const {
    return reinterpret_cast<std::byte*>(&rank(of)) + sizeof(ShmRank) + number % kShmPosts * kShmSlotBytes;
  }
  /// Bytes that `of` has read from the memory of rank `other`, and stored into it, by operation.
  std::atomic<std::uint64_t>& read_bytes(std::size_t of, std::size_t other, Collective by) const {
    return counters(of)[2 * (members_[other] * kShmKinds + static_cast<std::size_t>(by))];
  }
  std::atomic<std::uint64_t>& stored_bytes(std::size_t of, std::size_t other, Collective by) const {
    return counters(of)[2 * (members_[other] * kShmKinds + static_cast<std::size_t>(by)) + 1];
  }
  ShmMailbox& mailbox(std::size_t from, std::size_t to) const {
    return *reinterpret_cast<ShmMailbox*>(mailboxes(from) + members_[to] * mailbox_bytes());
  }
  std::byte* mailbox_slot(std::size_t from, std::size_t to) const {
    return mailboxes(from) + members_[to] * mailbox_bytes() + sizeof(ShmMailbox);
  }

 private:
  static constexpr std::size_t header_bytes() { return round_up(sizeof(ShmGroupHeader), 64); }
  static constexpr std::size_t counter_bytes(std::size_t ranks) { return round_up(ranks * kShmKinds * 16, 64); }
  static constexpr std::size_t mailbox_bytes() { return sizeof(ShmMailbox) + kShmSlotBytes; }
  static constexpr std::size_t rank_bytes(std::size_t ranks) {
    return header_bytes() + sizeof(ShmRank) + kShmPosts * kShmSlotBytes + counter_bytes(ranks) +
           ranks * mailbox_bytes();
  }
  static constexpr std::size_t group_bytes(std::size_t ranks) { return round_up(ranks * rank_bytes(ranks), 4096); }
  std::byte* place(std::size_t of) const { return base_ + members_[of] * rank_bytes(ranks_); }
  std::byte* after_slots(std::size_t of) const { return slot(of, 0) + kShmPosts * kShmSlotBytes; }
  std::atomic<std::uint64_t>* counters(std::size_t of) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(after_slots(of));
  }
  std::byte* mailboxes(std::size_t of) const { return after_slots(of) + counter_bytes(ranks_); }

  std::byte* base_;
  std::size_t ranks_;
  std::vector<std::size_t> members_;
};

}  // namespace psring::ring
