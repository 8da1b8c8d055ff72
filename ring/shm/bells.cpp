#include <algorithm>
#include <climits>
#include <utility>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <psring/ring/shm/bells.h>

namespace psring::ring {
namespace {

/// A memory fence between processes, with all of its cost on one side (membarrier(2)). One side stores a and then reads
/// b; the other side stores b, calls process_fence, and then reads a. At least one side sees the other's store,
/// although the first side has no fence of its own. So a rank that posts is fast, and a rank that falls asleep pays.

/// Call once in each process before it takes the fast side; harmless if repeated. Returns false if the kernel lacks or
/// forbids membarrier: then both sides need an ordinary fence.
bool join_process_fences() { return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

/// Every process that joined has passed a full fence when this returns. REQUIRES: join_process_fences() was true.
void process_fence() { ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

/// Turns of spinning before a rank yields. With more ranks than processors, the rank that is waited for may need this
/// very processor: then a rank yields almost at once. (4 ranks on 2 processors, 64 KiB: 24 us this way, 27 us with 64
/// turns, 115 us if a rank sleeps instead of yielding.)
constexpr unsigned kPauses = 64;
constexpr unsigned kCrowdedPauses = 4;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

ShmBells::ShmBells(ShmControl bells, std::size_t rank, std::size_t size, bool crowded)
    : bells_(std::move(bells)), rank_(rank), size_(size), pauses_(crowded ? kCrowdedPauses : kPauses) {
  if (join_process_fences()) own().fences.store(1, std::memory_order_relaxed);
}

/// Either a sleeper sees the earlier stores, or this rank sees that the sleeper sleeps. The sleeper's fence is enough
/// for both. A fence here would wait until the stores have left this processor: a third of a small operation's time.
/// Memory order: the words of sleepers are relaxed, because fences order them; the sleeper's is one of all processes
/// (process_fence.h), which counts for a rank that is between its store and its look. The bell only has to change; it
/// is released for those who look without a fence.
void ShmBells::ring() {
  if (all_fence_) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    all_fence_ = true;
    for (std::size_t r = 0; r < size_; ++r)
      all_fence_ = all_fence_ && bells_.rank(r).fences.load(std::memory_order_relaxed) == 1;
  }
  wake_sleepers();
}

void ShmBells::wake_sleepers() {
  for (std::size_t r = 0; r < size_; ++r) {
    ShmRank& peer = bells_.rank(r);
    if (r == rank_ || peer.sleeping.load(std::memory_order_relaxed) == 0) continue;
    peer.bell.fetch_add(1, std::memory_order_release);
    futex(peer.bell, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

/// A rank that rings stores first, then looks whether this rank sleeps. This rank says so first, then looks for stores.
std::uint32_t ShmBells::watch() {
  const std::uint32_t seen = own().bell.load(std::memory_order_acquire);
  own().sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (own().fences.load(std::memory_order_relaxed) == 1) process_fence();
  return seen;
}

void ShmBells::sleep(std::uint32_t seen, Nanoseconds at_most) {
  const timespec limit{0, at_most.count()};
  futex(own().bell, FUTEX_WAIT, seen, &limit);
}

void ShmBells::rest(std::uint32_t seen, Moment until) {
  if (!spin([&] { return own().bell.load(std::memory_order_acquire) != seen; })) {
    const Nanoseconds left = until - SystemClock().now();
    if (left > Nanoseconds(0)) sleep(seen, std::min(left, kSleep));
  }
  leave();
}

}  // namespace psring::ring
