#pragma once

#include <cstddef>
#include <cstdint>

#include <psring/ring/shm/progress.h>
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

/// A collective in flight. It waits until all ranks have posted it, chooses the way, and runs the phases of that way; a
/// phase ends when all ranks have ticked.
class ShmOperation final : public ShmTask {
 public:
  /// REQUIRES: the operation is posted.
  ShmOperation(ShmProgress& progress, ShmEndpoint& at, std::uint64_t number, const Request& request);

  bool advance() override;
  bool finished() const override { return finished_; }
  std::vector<std::size_t> awaited() const override;
  Announced said() const override { return call_.said; }
  /// Goes as far as possible without waiting; true once finished. REQUIRES: operations before it are finished.
  bool step();

 private:
  bool all_posted();
  void choose_way();
  bool run();
  bool run_direct();
  bool run_shared();
  bool run_staged();
  bool all_ticked(std::uint64_t ticks) const;
  void tick();
  bool is_missing(std::size_t rank) const;

  ShmEndpoint& at_;
  const ShmCall call_;
  ShmVectors vectors_;
  bool finished_ = false;
  std::size_t posted_ = 0;        ///< the first ranks are known to have posted it, up to this one
  std::uint64_t first_tick_ = 0;  ///< of this rank, when the operation began
  std::size_t iteration_ = 0;     ///< of a staged way; of a direct way 1 once this rank's share is done
};

}  // namespace psring::ring
