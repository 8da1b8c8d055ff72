#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/ring/shm/endpoint.h>

namespace psring::ring {

/// The way in which ranks reach each other's vectors in one operation.
enum class ShmWay : std::uint8_t {
  none,    ///< not chosen yet: a rank has not posted
  eager,   ///< copied into eager buffers of the control file, and each rank reduces all of it: one barrier
  direct,  ///< in the arenas, and each rank does its own share: two barriers
  shared,  ///< as direct, but the ranks that run claim slices of all shares: for more ranks than processors
  staged,  ///< slice by slice through staging memory: at least one vector lies outside of its rank's arena
};

/// An operation as this rank called it.
struct ShmCall {
  std::uint64_t number = 0;  ///< in this group
  Call call;
  Announced said;  ///< the operation that other ranks compare, count and name: an outer group's, or this one
  Vector data;
  ReduceOp op;
  Parts parts;
};

/// The vectors of all ranks in one operation, and the work on them. In a reduction, the owner of a share reads its
/// range of all vectors, reduces in rank order, and stores the result: into all vectors for an all-reduce, into its own
/// for a reduce-scatter. In an all-gather or broadcast a rank copies from the others.
class ShmVectors {
 public:
  ShmVectors(ShmEndpoint& at, const ShmCall& call) : at_(at), call_(call) {}

  ShmWay way() const { return way_; }
  /// `slice_bytes`: of a slice that passes through staging memory; all ranks choose the same.
  void choose(ShmWay way, std::size_t slice_bytes) {
    way_ = way;
    slice_bytes_ = slice_bytes;
  }

  /// Does the owner's share of the work on a slice of the vectors; the bytes count as the owner's. The share of another
  /// rank can be done only if all vectors lie in the arenas.
  void perform(std::size_t owner, Range slice);

  /// The address of a slice of a rank's vector, or of its staging memory.
  std::byte* address(std::size_t rank, Range slice) const;
  /// The part of a range that a rank reduces for all in an all-reduce.
  Range chunk(std::size_t rank, Range whole) const;
  /// The index-th slice that passes through staging memory; it may reach beyond the vector.
  Range staged_slice(std::size_t index) const;
  std::size_t staged_slices() const { return (call_.data.bytes() + slice_bytes_ - 1) / slice_bytes_; }

 private:
  void reduce_share(std::size_t owner, Range slice);
  void reduce_range(std::size_t owner, Range range, Range slice);
  void copy(std::size_t owner, std::size_t from, Range range, Range slice);
  std::byte* vector_of(std::size_t rank, Range range) const;

  ShmEndpoint& at_;
  const ShmCall& call_;
  ShmWay way_ = ShmWay::none;
  std::size_t slice_bytes_ = kShmSliceBytes;
};

}  // namespace psring::ring
