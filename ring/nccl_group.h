#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <psring/common/device/device.h>
#include <psring/ring/process_group.h>
#include <psring/ring/shm_group.h>

namespace psring::ring {

struct NcclOptions {
  /// `check` is called from a thread of the group's own, too.
  GroupOptions group;
  /// Several ranks may compute on one GPU: NCCL is told to take each for a host of its own, and everything goes through
  /// its sockets.
  bool share_gpu = false;
  /// The network interface of NCCL's sockets; "": as NCCL chooses.
  std::string interface = {};
  /// Memory of at least so many bytes, for parameters, gradients and what is communicated, that is allocated later
  /// comes from NCCL, and is registered with it where a collective has it; in pieces of 2 MiB. Not where ranks share a
  /// GPU.
  std::size_t register_from = std::size_t{1} << 20;
  /// With connections that NCCL makes: at first, and for the first operation of a kind.
  Nanoseconds patience = std::chrono::seconds(60);
};

/// A group whose vectors may lie in the memory of `device`: those travel through NCCL, in the order of the device's
/// queue. Work::wait does not make the host wait: what is queued after it comes after the operation. All others, and
/// barriers, go the way of `host`, through which NCCL's id travels, too; before a barrier the host waits for what of
/// this group is under way.
///
/// Sums run in NCCL's order, in the vectors' type, a mean's factor 1/n before them: not those of a sum in rank order.
/// NCCL does not say what it moves; bytes are those of a ring: 2 (n-1)/n of a vector for an all-reduce, (n-1)/n for a
/// reduce-scatter or all-gather, sent to the next rank and received from the one before.
///
/// REQUIRES of ranks of more than one GPU: from here on they get and free memory of the device for parameters,
/// gradients and what is communicated in the same order, by size, and vectors lie in the same places of it: NCCL finds
/// what is registered on one rank by what it is on another. Messages are of memory that no collective has: both ends of
/// one have to be registered, or none.
///
/// A thread watches: where a peer is lost, an operation is not complete in time, or NCCL reports an error, it ends what
/// is under way, and every later call, and every wait of the host for the device, throws what it was.
///
/// REQUIRES: make_cuda_device made the device, which outlives it; ranks come to the end of the group together (a
/// barrier). Throws usage where this build has no CUDA.
std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options);

}  // namespace psring::ring
