#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include <psring/ring/shm/post.h>
#include <psring/ring/shm/vectors.h>

namespace psring::ring {

Range ShmVectors::chunk(std::size_t rank, Range whole) const {
  const std::size_t n = at_.size();
  return {whole.begin + rank * whole.size() / n, whole.begin + (rank + 1) * whole.size() / n};
}

Range ShmVectors::staged_slice(std::size_t index) const {
  const std::size_t elements = slice_bytes_ / call_.call.type.bytes();
  return Range{index * elements, (index + 1) * elements}.intersect({0, std::max(call_.call.count, elements)});
}

std::byte* ShmVectors::address(std::size_t rank, Range slice) const {
  const std::size_t bytes = slice.begin * call_.call.type.bytes();
  if (way_ == ShmWay::eager) return eager_buffer_of(at_, rank, call_.number, call_.data.bytes()) + bytes;
  const ShmPost& post = at_.control().post(rank, call_.number);
  const std::size_t offset =
      post.offset + (post.staged ? slice.begin / staged_slice(0).size() % 2 * slice_bytes_ : bytes);
  check(offset + slice.size() * call_.call.type.bytes() <= at_.capacity(rank), "rank {} names memory it does not have",
        rank);
  return at_.base(rank) + offset;
}

/// The address of a range of a rank's vector itself, staged or not.
/// REQUIRES: the rank is this one, or its vector lies in its arena.
std::byte* ShmVectors::vector_of(std::size_t rank, Range range) const {
  if (rank != at_.rank()) return address(rank, range);
  return call_.data.data + range.begin * call_.call.type.bytes();
}

void ShmVectors::perform(std::size_t owner, Range slice) {
  switch (call_.call.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return reduce_share(owner, slice);
    case Collective::all_gather:
      for (std::size_t r = 0; r < at_.size(); ++r) {
        if (r == owner) continue;
        for (const Range range : call_.parts[r]) copy(owner, r, range, slice);
      }
      return;
    case Collective::broadcast:
      if (owner != call_.call.root) copy(owner, call_.call.root, slice, slice);
      return;
    default:
      return;
  }
}

/// With eager buffers, every rank of an all-reduce reduces the whole vector for itself; otherwise each rank reduces its
/// chunk and stores it to all.
void ShmVectors::reduce_share(std::size_t owner, Range slice) {
  if (call_.call.collective == Collective::reduce_scatter) {
    for (const Range range : call_.parts[owner]) reduce_range(owner, range, slice);
  } else if (way_ == ShmWay::eager) {
    reduce_range(owner, slice, slice);
  } else {
    reduce_range(owner, chunk(owner, way_ == ShmWay::staged ? slice : Range{0, call_.call.count}), slice);
  }
}

void ShmVectors::reduce_range(std::size_t owner, Range range, Range slice) {
  range = range.intersect(slice);
  if (range.empty()) return;
  const std::size_t n = at_.size();
  constexpr std::size_t kFew = 16;
  std::array<const std::byte*, kFew> few_from;
  std::array<std::byte*, kFew> few_to;
  std::vector<const std::byte*> many_from(n > kFew ? n : 0);
  std::vector<std::byte*> many_to(n > kFew ? n : 0);
  const std::span from(n > kFew ? many_from.data() : few_from.data(), n);
  const std::span to(n > kFew ? many_to.data() : few_to.data(), n);
  const std::size_t width = call_.call.type.bytes();
  const std::size_t bytes = range.size() * width;
  const std::size_t kind = shm_kind(call_.said);
  const bool to_all = call_.call.collective == Collective::all_reduce && way_ != ShmWay::eager;
  ShmTraffic& traffic = at_.traffic();
  std::size_t targets = 0;
  for (std::size_t r = 0; r < n; ++r) {
    std::byte* there = r == owner ? vector_of(owner, range) : address(r, slice) + (range.begin - slice.begin) * width;
    from[r] = there;
    if (r != owner) traffic.add_read(owner, r, kind, bytes);
    if (to_all || r == owner) to[targets++] = there;
    if (to_all && r != owner) traffic.add_stored(owner, r, kind, bytes);
  }
  reduce(call_.op, call_.call.type, from, to.first(targets), range.size(), 1.0 / static_cast<double>(call_.said.ranks));
}

void ShmVectors::copy(std::size_t owner, std::size_t from, Range range, Range slice) {
  range = range.intersect(slice);
  if (range.empty()) return;
  const std::size_t width = call_.call.type.bytes();
  const std::size_t bytes = range.size() * width;
  std::memcpy(vector_of(owner, range), address(from, slice) + (range.begin - slice.begin) * width, bytes);
  at_.traffic().add_read(owner, from, shm_kind(call_.said), bytes);
}

}  // namespace psring::ring
