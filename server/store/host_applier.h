#pragma once

#include <vector>

#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/parallel.h>
#include <psring/common/device/buffer.h>
#include <psring/optim/state_memory.h>
#include <psring/server/shard_options.h>
#include <psring/server/store/applier.h>

namespace psring::server {

/// Applies updates on the host. Works in blocks that go through aggregation, update and copies while they are in the
/// first-level cache.
class HostApplier final : public Applier {
 public:
  /// REQUIRES: options, parallel and ledger outlive this.
  HostApplier(const ShardOptions& options, const Layout& layout, Parallel& parallel, MemoryLedger& ledger);

  void begin_with(Range place, std::span<const float> values) final;
  void begin_with_state(std::size_t slot, Range place, std::span<const float> values) final;
  void apply_pushed(std::span<const ConstElements> gradients, const PieceUpdate& update) final;
  void add_to_mean(std::span<const ConstElements> gradients, Range place, bool first) final;
  void apply_mean(const PieceUpdate& update) final;
  void add_square_sums(optim::ExactSum& sum) final;
  Elements mean(Range place) final { return mean_.elements(gradient_type_).part(place); }
  Elements master(Range place) final;
  Elements state(std::size_t slot, Range place) final { return state_.slot(slot, place); }

 private:
  void apply(const PieceUpdate& update, Range block, ConstElements gradient);
  void compensate(const PieceUpdate& update, Range block, Elements gradient) const;

  const ShardOptions& options_;
  Parallel& parallel_;
  const DType gradient_type_;
  const std::vector<Range> counted_;  ///< places of the tensors that norms count here
  Buffer master_;                     ///< of parameters narrower than f32
  optim::StateMemory state_;
  Buffer mean_;  ///< of the whole step, if it is kept; a layerwise rule's direction takes its place
};

}  // namespace psring::server
