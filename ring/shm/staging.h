#pragma once

#include <psring/ring/shm/vectors.h>

namespace psring::ring {

/// Copies between this rank's vector, which lies outside of the arena, and its staging memory. Only the elements that
/// other ranks read or store are copied. Does nothing if this rank's vector lies in the arena.
class ShmStaging {
 public:
  ShmStaging(const ShmEndpoint& at, const ShmCall& call, const ShmVectors& vectors)
      : at_(at), call_(call), vectors_(vectors) {}

  /// Before other ranks read the slice.
  void stage_in(Range slice) const;
  /// After other ranks have stored to the slice, as they do in an all-reduce alone.
  void stage_out(Range slice) const;

 private:
  template <class Function>
  void for_each_range(Range slice, Function function) const;
  std::byte* staged(Range range, Range slice) const;
  std::byte* own(Range range) const { return call_.data.data + range.begin * call_.call.type.bytes(); }

  const ShmEndpoint& at_;
  const ShmCall& call_;
  const ShmVectors& vectors_;
};

}  // namespace psring::ring
