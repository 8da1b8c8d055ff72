#include <algorithm>
#include <cstring>

#include <psring/ring/shm/operation.h>
#include <psring/ring/shm/post.h>

namespace psring::ring {

/// Calls `function` with each range of the slice that other ranks read, or reduce and store.
template <class Function>
void ShmStaging::for_each_range(Range slice, Function function) const {
  const std::size_t me = at_.rank();
  if (!at_.control().post(me, call_.number).staged) return;
  switch (call_.call.collective) {
    case Collective::all_reduce:
      for (std::size_t r = 0; r < at_.size(); ++r)
        if (r != me) function(vectors_.chunk(r, slice));
      return;
    case Collective::reduce_scatter:
      for (std::size_t r = 0; r < at_.size(); ++r) {
        if (r == me) continue;
        for (const Range range : call_.parts[r]) function(range.intersect(slice));
      }
      return;
    case Collective::all_gather:
      for (const Range range : call_.parts[me]) function(range.intersect(slice));
      return;
    default:
      if (me == call_.call.root) function(slice);
  }
}

std::byte* ShmStaging::staged(Range range, Range slice) const {
  return vectors_.address(at_.rank(), slice) + (range.begin - slice.begin) * call_.call.type.bytes();
}

void ShmStaging::stage_in(Range slice) const {
  for_each_range(slice, [&](Range range) {
    if (!range.empty()) std::memcpy(staged(range, slice), own(range), range.size() * call_.call.type.bytes());
  });
}

void ShmStaging::stage_out(Range slice) const {
  if (call_.call.collective != Collective::all_reduce) return;
  for_each_range(slice, [&](Range range) {
    if (!range.empty()) std::memcpy(own(range), staged(range, slice), range.size() * call_.call.type.bytes());
  });
}

ShmOperation::ShmOperation(ShmProgress& progress, ShmEndpoint& at, std::uint64_t number, const Request& request)
    : ShmTask(progress),
      at_(at),
      call_{number,       request.call, request.announced(number, at.size()),
            request.data, request.op,   request.parts != nullptr ? *request.parts : Parts()},
      vectors_(at_, call_) {}

bool ShmOperation::advance() {
  if (finished_) return true;
  at_.failure().rethrow();
  progress().advance();
  return finished_;
}

/// Memory order: a rank releases its post, each of its ticks and `completed` after its stores and loads of the phase
/// before; who acquires them may read what was stored, and overwrite what was read. A rank's own ticks and `holds`,
/// which only says whom others wait for, are relaxed.
bool ShmOperation::step() {
  if (vectors_.way() == ShmWay::none) {
    if (!all_posted()) return false;
    first_tick_ = at_.own().ticks.load(std::memory_order_relaxed);
    choose_way();
  }
  if (!run()) return false;
  at_.own().completed.store(call_.number + 1, std::memory_order_release);
  // Only a rank that is kShmPosts ahead waits for this. If it falls asleep just now, our next post wakes it.
  at_.bells().wake_sleepers();
  if (vectors_.way() == ShmWay::eager) prepare_post(at_, progress().next_number(), call_.data.bytes());
  return finished_ = true;
}

bool ShmOperation::all_posted() {
  for (; posted_ < at_.size(); ++posted_) {
    const ShmPost& theirs = at_.control().post(posted_, call_.number);
    if (theirs.number.load(std::memory_order_acquire) != call_.number + 1) return false;
    at_.check_call(posted_, theirs.call, call_.said);
  }
  return true;
}

/// A vector in an eager buffer is copied, but costs one barrier; a vector in the arena costs two. (With 2 ranks a copy
/// is slower from about 1 KiB on.) If only some vectors lie in the arenas, these have no eager buffers, and the others
/// go through staging. With more ranks than processors, the running ranks do the shares of the ranks that do not run.
void ShmOperation::choose_way() {
  std::size_t staged = 0;
  std::size_t crowded = 0;
  for (std::size_t r = 0; r < at_.size(); ++r) {
    const ShmPost& post = at_.control().post(r, call_.number);
    staged += post.staged ? 1 : 0;
    crowded += post.crowded ? 1 : 0;
  }
  const std::size_t slice_bytes = crowded == at_.size() ? kShmCrowdedSliceBytes : kShmSliceBytes;
  ShmWay way = staged == at_.size() && call_.data.bytes() <= kShmEagerBytes ? ShmWay::eager : ShmWay::staged;
  if (call_.data.bytes() <= kShmCopiedBytes) {
    way = ShmWay::eager;
  } else if (staged == 0) {
    way = crowded > 0 ? ShmWay::shared : ShmWay::direct;
  }
  vectors_.choose(way, slice_bytes);
}

bool ShmOperation::run() {
  switch (vectors_.way()) {
    case ShmWay::direct:
      return run_direct();
    case ShmWay::shared:
      return run_shared();
    case ShmWay::staged:
      return run_staged();
    default:
      vectors_.perform(at_.rank(), {0, call_.call.count});
      return true;
  }
}

/// Each rank does its own share, and waits for the shares of the others.
bool ShmOperation::run_direct() {
  if (iteration_ == 0) {
    vectors_.perform(at_.rank(), {0, call_.call.count});
    tick();
    at_.bells().ring();
    iteration_ = 1;
  }
  return all_ticked(first_tick_ + 1);
}

/// A rank that runs does the next slice of all shares, from the end of the vectors on: the elements that were written
/// last are still in cache, and the elements that are reduced last are read first. A rank that had no processor
/// meanwhile finds everything done.
bool ShmOperation::run_shared() {
  ShmShares& shares = at_.control().header().shares;
  const std::size_t count = call_.call.count;
  const std::size_t elements =
      std::max(kShmShareBytes / call_.call.type.bytes(), (count + ShmShares::kMost - 1) / ShmShares::kMost);
  const std::uint64_t slices = std::max<std::uint64_t>(1, (count + elements - 1) / elements);
  auto& holds = at_.own().holds;
  holds.store(call_.number + 1, std::memory_order_relaxed);
  while (const auto index = shares.claim(call_.number, slices)) {
    const std::uint64_t place = slices - 1 - *index;
    const Range slice = Range{place * elements, (place + 1) * elements}.intersect({0, count});
    for (std::size_t owner = 0; owner < at_.size(); ++owner) vectors_.perform(owner, slice);
    if (shares.finish(slices)) at_.bells().ring();
  }
  holds.store(0, std::memory_order_relaxed);
  return shares.done(call_.number, slices);
}

/// Iteration k copies slice k in, performs slice k - 1, and copies slice k - 2 out: with two slices of staging memory
/// no rank waits for copies. An iteration begins when all ranks have finished the previous one.
bool ShmOperation::run_staged() {
  const ShmStaging staging(at_, call_, vectors_);
  const std::size_t slices = vectors_.staged_slices();
  const auto slice = [&](std::size_t index) { return vectors_.staged_slice(index).intersect({0, call_.call.count}); };
  for (;; ++iteration_) {
    if (iteration_ > 0 && !all_ticked(first_tick_ + iteration_)) return false;
    if (iteration_ >= 2) staging.stage_out(slice(iteration_ - 2));
    if (iteration_ == slices + 1) return true;
    if (iteration_ < slices) staging.stage_in(slice(iteration_));
    if (iteration_ >= 1) vectors_.perform(at_.rank(), slice(iteration_ - 1));
    tick();
    at_.bells().ring();
  }
}

bool ShmOperation::all_ticked(std::uint64_t ticks) const {
  for (std::size_t r = 0; r < at_.size(); ++r)
    if (at_.control().rank(r).ticks.load(std::memory_order_acquire) < ticks) return false;
  return true;
}

void ShmOperation::tick() {
  auto& ticks = at_.own().ticks;
  ticks.store(ticks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::vector<std::size_t> ShmOperation::awaited() const {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < at_.size(); ++r)
    if (is_missing(r)) ranks.push_back(at_.name(r));
  if (ranks.empty()) ranks.push_back(at_.name(0));  // all have come since this rank looked
  return ranks;
}

bool ShmOperation::is_missing(std::size_t rank) const {
  const std::uint64_t own = call_.number + 1;
  if (vectors_.way() == ShmWay::none)
    return at_.control().post(rank, call_.number).number.load(std::memory_order_acquire) != own;
  const ShmRank& theirs = at_.control().rank(rank);
  if (vectors_.way() == ShmWay::shared)
    return rank != at_.rank() && theirs.holds.load(std::memory_order_relaxed) == own;
  const std::uint64_t wanted = first_tick_ + (vectors_.way() == ShmWay::direct ? 1 : iteration_);
  return theirs.ticks.load(std::memory_order_acquire) < wanted;
}

}  // namespace psring::ring
