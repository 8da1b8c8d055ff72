#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace psring {

/// The version that workers ask for, and servers answer with, once all workers have left: no update follows.
inline constexpr std::uint64_t kFinalVersion = std::numeric_limits<std::uint64_t>::max();

/// Consistency model: how far workers may run ahead of each other, and how many gradients an update takes. A worker's
/// clock is the number of steps whose gradients it has pushed; its lag is its clock minus the slowest worker's clock.
/// Servers enforce the model.
///
/// `bsp`: an update takes every worker's gradient of the same step, and a pull waits for the version that it names
/// (Valiant, "A Bridging Model for Parallel Computation", CACM 1990). With b backup workers an update takes only the
/// first n - b gradients, and later gradients are dropped (Chen et al., "Revisiting Distributed Synchronous SGD",
/// arXiv:1604.00981).
/// `ssp:k`: each push is an update, and a worker waits while it is more than k steps ahead of the slowest worker (Ho et
/// al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013).
/// `asp`: each push is an update, and no worker waits.
struct Consistency {
  bool each_push_updates = false;
  std::optional<std::uint64_t> bound = 0;  ///< steps that a worker may be ahead of the slowest; unbounded if empty
  std::size_t backups = 0;                 ///< workers whose gradients an update does not wait for

  /// Returns whether an update is due, now that `pushed` of `workers` workers have pushed their gradients.
  bool update_due(std::size_t pushed, std::size_t workers) const {
    return each_push_updates ? pushed > 0 : pushed + backups >= workers;
  }
  /// Returns whether a pull is answered with exactly the version that it names. Then all shards answer with the same
  /// version.
  bool exact() const { return !each_push_updates && backups == 0; }
  /// Returns whether a pull may be answered. `wanted`: the clock of the worker that asks; `slowest`: the slowest
  /// worker's clock.
  bool answers(std::uint64_t slowest, std::uint64_t wanted) const {
    if (wanted == kFinalVersion) return slowest == kFinalVersion;
    return !bound || wanted <= slowest || wanted - slowest <= *bound;
  }
};

/// Parses `bsp`, `ssp:K` or `asp`. Throws usage.
Consistency parse_consistency(const std::string& text, std::size_t backups = 0);

/// A server's remedy for stale gradients. A gradient is stale if other workers updated the parameters after its worker
/// read them.
struct StalenessRemedy {
  enum class Kind : std::uint8_t {
    none,
    scale_lr,   ///< the learning rate is divided by 1 + staleness (after Zhang et al., arXiv:1511.05950)
    compensate  ///< g + lambda g*g*(w - w_then) takes the place of g (DC-ASGD, Zheng et al., arXiv:1609.08326)
  };
  Kind kind = Kind::none;
  double lambda = 0;  ///< factor of `compensate`

  /// Returns whether a server keeps a copy of the values that it last sent to each worker.
  bool keeps_answers() const { return kind == Kind::compensate; }
};

/// Parses `none`, `scale-lr`, `dc-asgd` or `dc-asgd:lambda=L`. Throws usage.
StalenessRemedy parse_remedy(const std::string& text);

}  // namespace psring
