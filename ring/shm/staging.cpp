#include <cstring>

#include <psring/ring/shm/staging.h>

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

}  // namespace psring::ring
