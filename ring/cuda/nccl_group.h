#pragma once

#include <memory>

#include <psring/ring/nccl_group.h>

namespace psring::ring::cuda {

/// The implementation of make_nccl_group (ring/nccl_group.h), in the module that links NCCL.
std::unique_ptr<ProcessGroup> make_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options);

}  // namespace psring::ring::cuda
