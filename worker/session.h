#pragma once

#include <optional>
#include <span>
#include <vector>

#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/worker/ps_client.h>

namespace psring::worker {

/// A worker of a user's own program: joins a job, links to its servers by shared memory or TCP, and holds
/// buffers for its units, from which pushes leave and into which pulls arrive without a copy.
class Session {
 public:
  /// Throws as the links and the coordinator do: timeout, unauthorised, peer_lost, usage.
  Session(const RoleOptions& options, std::vector<UnitSpec> units);

  Membership& membership() { return member_; }
  PsClient& client() { return *client_; }
  std::span<float> parameters(std::size_t unit) { return parameters_.at(unit).as<float>(); }
  std::span<float> gradients(std::size_t unit) { return gradients_.at(unit).as<float>(); }
  /// Tells the job that this worker is done; the last call.
  void finish();

 private:
  Membership member_;
  std::optional<Arena> arena_;
  std::vector<Buffer> parameters_;
  std::vector<Buffer> gradients_;
  std::optional<PsClient> client_;
};

}  // namespace psring::worker
