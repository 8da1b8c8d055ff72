#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/net/outbox.h>
#include <psring/common/net/transport.h>
#include <psring/optim/loss_scaler.h>
#include <psring/server/shard_options.h>
#include <psring/server/verdict.h>

namespace psring::server {

/// Decides how a step continues if its updates wait for sums over all shards. A pure state machine around Verdict.
///
/// Up to two rounds: the norm of all gradients, for clipping and loss scaling, then for a layerwise rule the norms of
/// each tensor. A shard begins once the mean gradients of all its pieces are complete:
///
///     on_square_sum  →  skip, or apply  →  on_layer_sums (layerwise rules only)  →  scale_layers
///
/// Each call, and each verdict frame, returns the next action, or `wait` until the other shards' sums are there.
class StepVerdict {
 public:
  enum class Action : std::uint8_t {
    wait,         ///< for other shards
    skip,         ///< gradients are not finite: the step leaves all parameters as they are
    apply,        ///< apply the optimizer with gradient_scale()
    scale_layers  ///< scale each tensor's direction, by `total`
  };
  struct Decision {
    Action action = Action::wait;
    Verdict::Sums total;  ///< over all shards; with scale_layers only
  };

  /// REQUIRES: options outlive this.
  explicit StepVerdict(const ShardOptions& options)
      : options_(options), verdict_(options.job_rank(), options.job_servers()), scaler_(options.loss_scaler) {}

  /// This shard's sum of squares of all mean gradients. REQUIRES: options.needs_norm().
  Decision on_square_sum(const optim::ExactSum& mine, std::vector<net::Outgoing>& replies);
  /// This shard's sums of a layerwise rule (layerwise_sums in whole_step.h).
  Decision on_layer_sums(const Verdict::Sums& mine, std::vector<net::Outgoing>& replies);
  /// A verdict frame of another shard. Throws protocol if none is due.
  Decision on_message(const net::Message& message, std::vector<net::Outgoing>& replies);
  /// Forgets the round under way.
  void begin_epoch();

  /// Gradients of the step are multiplied by this: it clips them and removes the loss scale.
  float gradient_scale() const { return gradient_scale_; }
  const optim::LossScaler& scaler() const { return scaler_; }
  /// True if the last step was skipped.
  bool skipped() const { return skipped_; }

  /// The state between two steps, for a follower: loss scale, number of rounds, last total (docs/wire.md).
  std::vector<std::byte> store() const;
  /// Throws protocol and data if the bytes are not such a state.
  void restore(std::span<const std::byte> state, bool skipped);

 private:
  Decision on_total(Verdict::Sums total);

  const ShardOptions& options_;
  Verdict verdict_;
  optim::LossScaler scaler_;
  bool norm_due_ = false;  ///< the round under way is about the norm of all gradients
  bool skipped_ = false;
  float gradient_scale_ = 1;
};

}  // namespace psring::server
