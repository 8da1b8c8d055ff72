#pragma once

#include <memory>

#include <psring/ring/nccl_group.h>

namespace psring::ring::cuda {

/// As make_nccl_group says: here is where it is made.
std::unique_ptr<ProcessGroup> make_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options);

}  // namespace psring::ring::cuda
