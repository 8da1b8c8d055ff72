#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace psring {
class Spec;
}

namespace psring::server {

/// How far workers may run ahead of each other: when a shard updates a piece, and which version answers.
class Consistency {
 public:
  virtual ~Consistency() = default;
  /// May the piece be updated, now that `pushed` of `workers` have pushed for its next version?
  virtual bool update_due(std::size_t pushed, std::size_t workers) const = 0;
  /// Does `version` answer a pull that asked for `wanted`?
  virtual bool answers(std::uint64_t version, std::uint64_t wanted) const = 0;
};

/// `bsp`: an update takes every worker's gradient of the same step, and a pull waits for the version that
/// it names (Valiant, "A Bridging Model for Parallel Computation", CACM 1990). Throws usage for any other.
std::unique_ptr<Consistency> make_consistency(const Spec& spec);

}  // namespace psring::server
