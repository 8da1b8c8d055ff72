#pragma once

#include <string>

#include <cuda_runtime.h>
#include <nccl.h>

#include <psring/common/device/cuda/device.h>
#include <psring/ring/nccl_group.h>
#include <psring/ring/request.h>

namespace psring::ring::cuda {

/// "2.26.5"
std::string nccl_version();

/// Sets the environment variables that NCCL reads when it is first used; variables that are set already stay. Throws
/// usage if NCCL is too old.
void prepare_nccl(const NcclOptions& options);

/// Device memory that NCCL can register. Allocation gives null for any failure: NCCL does not say which.
psring::cuda::MemorySource nccl_memory();

/// Queues the NCCL calls of a collective on a stream. Parts of all ranks that are equal and lie in the order of the
/// ranks take one call; other parts take one call each. REQUIRES: no barrier, send or recv.
void queue_collective(const Request& request, std::size_t rank, ncclComm_t communicator, cudaStream_t stream);

/// Queues one send or recv.
void queue_message(const Request& request, ncclComm_t communicator, cudaStream_t stream);

}  // namespace psring::ring::cuda
