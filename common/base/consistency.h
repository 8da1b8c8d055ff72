#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace psring {

/// The version that is asked for, and answered, once all workers have left: no update follows.
inline constexpr std::uint64_t kFinalVersion = std::numeric_limits<std::uint64_t>::max();

/// How far workers may run ahead of each other, and of how many gradients an update is made. A worker's clock is the
/// number of steps whose gradients it has pushed; its lag is its clock minus the slowest's. Servers enforce it.
///
/// `bsp`: an update takes every worker's gradient of the same step, and a pull waits for the version that it names
/// (Valiant, "A Bridging Model for Parallel Computation", CACM 1990); with backup workers only the first n - b, and
/// what comes later is dropped (Chen et al., "Revisiting Distributed Synchronous SGD", arXiv:1604.00981). `ssp:k`: each
/// push is an update, and a worker waits while it is more than k steps ahead of the slowest (Ho et al., "More Effective
/// Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013). `asp`: each push is an update, and
/// nobody waits.
struct Consistency {
  bool each_push_updates = false;
  std::optional<std::uint64_t> bound = 0;  ///< steps that a worker may be ahead of the slowest; none: any
  std::size_t backups = 0;                 ///< workers whose gradients an update does not wait for

  /// May an update be made, now that `pushed` of `workers` have pushed for it?
  bool update_due(std::size_t pushed, std::size_t workers) const {
    return each_push_updates ? pushed > 0 : pushed + backups >= workers;
  }
  /// Is a pull answered with the very version that it names, which two shards then have alike?
  bool exact() const { return !each_push_updates && backups == 0; }
  /// May a pull for `wanted`, the asker's clock, be answered while the slowest's is `slowest`?
  bool answers(std::uint64_t slowest, std::uint64_t wanted) const {
    if (wanted == kFinalVersion) return slowest == kFinalVersion;
    return !bound || wanted <= slowest || wanted - slowest <= *bound;
  }
};

/// `bsp`, `ssp:K` or `asp`. Throws usage.
Consistency parse_consistency(const std::string& text, std::size_t backups = 0);

/// What a server does about a stale gradient: one between whose values and whose update others made updates.
struct StalenessRemedy {
  enum class Kind : std::uint8_t {
    none,
    scale_lr,   ///< the learning rate is divided by 1 + staleness (after Zhang et al., arXiv:1511.05950)
    compensate  ///< g + lambda g*g*(w - w_then) takes the place of g (DC-ASGD, Zheng et al., arXiv:1609.08326)
  };
  Kind kind = Kind::none;
  double lambda = 0;  ///< of compensate

  /// Does a server keep the values that each worker was given last?
  bool keeps_given() const { return kind == Kind::compensate; }
};

/// `none`, `scale-lr`, `dc-asgd` or `dc-asgd:lambda=L`. Throws usage.
StalenessRemedy parse_remedy(const std::string& text);

}  // namespace psring
