#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/proc/role_options.h>

namespace psring::worker {

class PsClient;

/// A worker of a user's own program: joins a job, links to its servers by shared memory or TCP, and holds
/// buffers for its units, from which pushes leave and into which pulls arrive without a copy. A unit's buffers
/// are padded: they may be longer than its tensors. Belongs to one thread.
///
/// All calls throw as the links and the coordinator do: timeout, unauthorised, peer_lost, protocol, usage.
/// A Session that goes without `finish` is a lost worker to the rest of the job.
class Session {
 public:
  /// Waits until all processes of the job are there and the servers have taken the layout. All workers have to
  /// name the same units.
  Session(const RoleOptions& options, std::vector<UnitSpec> units);
  /// With one unit: a vector of `elements` elements, which starts at zero.
  Session(const RoleOptions& options, std::size_t elements);
  ~Session();

  std::size_t rank() const;     ///< of this worker
  std::size_t workers() const;  ///< of the job

  std::span<float> parameters(std::size_t unit = 0) const;
  std::span<float> gradients(std::size_t unit = 0) const;

  /// Sends `gradients(unit)` as this worker's part of a step (0, 1, ...), and waits until the servers have it.
  void push(std::uint64_t step, std::size_t unit = 0);
  /// Waits for a version of the unit (0: as it started, n: after n updates) and has it in `parameters(unit)`.
  void pull(std::uint64_t version, std::size_t unit = 0);
  /// Pushes the step's gradient and pulls the resulting version, step + 1, in one round trip.
  void push_pull(std::uint64_t step, std::size_t unit = 0);

  /// The same without waiting, for many units at once: <psring/worker/servers/ps_client.h>.
  PsClient& client();

  /// Tells the job that this worker is done; the last call.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace psring::worker
