#pragma once

#include <cstdint>
#include <vector>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// What each owner has of some units, in the vector in which those of them that are trained lie one after the other.
ring::Parts owners_of(const Layout& layout, Range units);

/// Gradients on their way to their owners, each of whom gets the mean of all ranks' of its range. A reduce-scatter; or,
/// where gradients are compressed, every rank sends each owner what its codec makes of that one's range, and the owner
/// reads those of all, its own too, adds them up in rank order in f32, and multiplies by 1/n.
/// Steps: n − 1 messages each way at once, C/n bytes each, C being what the codec makes of the whole.
class MeanScatter {
 public:
  /// `owners`: the ranks that cut the layout's units among themselves; outlives it, as the context does.
  MeanScatter(const Context& context, ring::ProcessGroup& owners);

  void begin_step(Step step) { step_ = step.index; }
  /// `gradients` of those of the units that are trained, one after the other: this rank's range of each becomes the
  /// mean; what they hold elsewhere is undefined afterwards. A unit is not started again before its work is done.
  ring::Work start(Range units, Elements gradients, std::size_t micro);

  /// Adds what such a call moves.
  void predict(Range units, Prediction& sum) const;
  /// Booked as communication, beside the compressor's own.
  std::size_t received_bytes() const { return received_.size_bytes(); }

 private:
  class Coded;

  /// Calls `body` with each of the units that is trained, and where its gradient begins.
  void for_each(Range units, const auto& body) const;
  std::size_t bytes_of(Range units) const;
  Elements received(std::size_t rank, Range units);
  void read_all(const Coded& coded);

  const Context& context_;
  ring::ProcessGroup& owners_;
  std::vector<std::size_t> workers_;  ///< by owner, its rank among all workers
  Buffer received_;                   ///< of each rank, what it sent of all units; of this one nothing
  std::uint64_t step_ = 0;
};

}  // namespace psring::worker
