#pragma once

#include <cstddef>
#include <span>

#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>
#include <psring/optim/exact_sum.h>
#include <psring/optim/optimizer.h>

namespace psring::server {

/// One update of a piece.
struct PieceUpdate {
  optim::Update terms;  ///< number, learning rate, gradient scale
  Range place;          ///< of the piece, in the shard's trained storage
  Elements now;         ///< the parameters that the update reads
  Elements next;        ///< where the parameters after the update are written; of a layerwise rule, the direction
  std::span<std::byte* const> copies;  ///< workers' memory that gets the same bytes as `next`
  /// Delay compensation (StalenessRemedy::Kind::compensate): the values that the worker computed its gradient from.
  /// Empty: none.
  ConstElements compensate_from;
};

/// Applies the optimizer to ranges of a shard's trained storage, and keeps the optimizer's state and the mean gradients
/// for that. On the host (HostApplier) or on a device (DeviceApplier); both give the same bits.
///
/// A gradient is either aggregated and applied at once (apply_pushed), or added up in the applier's own memory until
/// the step's last micro-batch, or the verdict, is there (add_to_mean, then apply_mean). The latter needs
/// ShardOptions::keeps_mean. Values that others pass and get lie in the host's memory.
class Applier {
 public:
  virtual ~Applier() = default;

  virtual void begin_with(Range place, std::span<const float> values) = 0;
  virtual void begin_with_state(std::size_t slot, Range place, std::span<const float> values) = 0;

  /// Updates with the aggregate of workers' gradients, in worker order. Without an optimizer `next` gets the aggregate.
  virtual void apply_pushed(std::span<const ConstElements> gradients, const PieceUpdate& update) = 0;
  /// The mean becomes the aggregate of these gradients or, unless they are the step's first, the sum of both. Each of
  /// the two is rounded once to the gradients' type.
  virtual void add_to_mean(std::span<const ConstElements> gradients, Range place, bool first) = 0;
  /// Updates with the mean. `next` may be the mean itself.
  virtual void apply_mean(const PieceUpdate& update) = 0;
  /// Adds the sum of squares of all mean gradients.
  virtual void add_square_sums(optim::ExactSum& sum) = 0;

  /// The memory of the mean gradient, of the f32 copy of narrower parameters (empty if there is none), and of one of
  /// the optimizer's slots (u8 if the rule keeps 8 bits). They may lie on the device.
  virtual Elements mean(Range place) = 0;
  virtual Elements master(Range place) = 0;
  virtual Elements state(std::size_t slot, Range place) = 0;
};

}  // namespace psring::server
