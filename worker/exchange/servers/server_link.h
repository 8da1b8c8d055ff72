#pragma once

#include <cstdint>
#include <memory>

#include <psring/worker/exchange/plan.h>

namespace psring::worker {

/// Push and pull between where this worker computes and the servers. Starting calls never wait.
class ServerLink {
 public:
  virtual ~ServerLink() = default;
  virtual void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) = 0;
  /// Pushes the gradient, and pulls the servers' answer into `into`: the parameters after the update, or the mean
  /// gradient.
  virtual void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into) = 0;
  /// `start_up`: outside of a step, so that the bytes count as control.
  virtual void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) = 0;
  /// On return the unit's values are here, in at least this version.
  virtual void wait(UnitId unit, std::uint64_t version) = 0;
  /// On return the servers have confirmed the unit's last push.
  virtual void wait_acknowledged(UnitId unit) = 0;
  /// On return nothing but the device's own queue touches the memory that the unit's values were pulled into.
  virtual void wait_copied(UnitId /*unit*/) {}
  /// Advances the exchanges in flight.
  virtual void progress() = 0;
  /// Time that this worker has waited, in total.
  virtual Nanoseconds waited() const = 0;
};

/// The client itself: values and gradients lie in the host's memory.
std::unique_ptr<ServerLink> make_direct_link(const World& world);

/// Copies between a GPU and the host: a gradient is copied to the host while backward goes on, and pushed once it is
/// there; values are copied to the GPU as soon as they have come, in the order of the units, and computation with them
/// is queued behind the copy. If servers share the host's memory, they read and write the copied bytes in place. The
/// staging buffers are UnitBuffers::staged_parameters and staged_gradients; codes have a buffer of their own. REQUIRES:
/// World::stages(), and an arena.
std::unique_ptr<ServerLink> make_staged_link(const Plan& plan, const World& world);

/// Pushes the compressor's codes in place of gradients.
std::unique_ptr<ServerLink> make_compressed_link(Compressor& compressor, std::unique_ptr<ServerLink> inner);

/// The links above, put together as the job needs them.
std::unique_ptr<ServerLink> make_server_link(const Plan& plan, const World& world);

}  // namespace psring::worker
