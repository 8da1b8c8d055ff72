#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <psring/common/device/device.h>
#include <psring/ring/group_options.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

struct NcclOptions {
  /// `check` is called from a thread of the group's own, too.
  GroupOptions group;
  /// Several ranks may share a GPU. NCCL then treats each rank as a host of its own, and moves everything through its
  /// sockets.
  bool share_gpu = false;
  /// The network interface of NCCL's sockets; "": NCCL chooses.
  std::string interface = {};
  /// Device memory for parameters, gradients and communication that is allocated later, of at least this many bytes,
  /// comes from NCCL in pieces of 2 MiB. A collective registers the pieces that it uses with NCCL. Ignored if ranks
  /// share a GPU.
  std::size_t register_from = std::size_t{1} << 20;
  /// The limit for connections that NCCL makes: at first, and for the first operation of each kind.
  Nanoseconds patience = std::chrono::seconds(60);
};

/// A group whose vectors may lie in the memory of `device`. Such vectors travel through NCCL, in the order of the
/// device's queue. Work::wait does not make the host wait: work that is queued for the device later runs after the
/// operation. Vectors in the host's memory, barriers, and NCCL's id go through `host`. Before a barrier the host waits
/// for this group's operations in flight.
///
/// Sums run in NCCL's order, in the type of the vectors, with a mean's factor 1/n applied before the sum: other bits
/// than a sum in rank order. NCCL does not report the bytes that it moves; the group counts the bytes of a ring: 2
/// (n-1)/n of a vector for an all-reduce, (n-1)/n for a reduce-scatter or all-gather, sent to the next rank and
/// received from the previous rank.
///
/// REQUIRES of ranks on more than one GPU: from here on they allocate and free device memory for parameters, gradients
/// and communication in the same order, by size, and use vectors at the same offsets of that memory, because NCCL
/// computes the address of another rank's registered memory from this rank's. No collective uses the memory of a
/// message: either both ends of a message are registered, or none.
///
/// A thread watches the operations. If a peer is lost, an operation is not complete in time, or NCCL reports an error,
/// the thread aborts the operations in flight. Every later call, and every wait of the host for the device, then throws
/// that error.
///
/// REQUIRES: make_cuda_device made the device, which outlives the group; ranks destroy the group together (after a
/// barrier). Throws usage if this build has no CUDA.
std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options);

}  // namespace psring::ring
