// The symbol that processes look up after loading the module; see common/device/cuda_module.cpp.
#include <utility>

#include <psring/ring/cuda/nccl_group.h>

extern "C" psring::ring::ProcessGroup* psring_make_nccl_group(std::unique_ptr<psring::ring::ProcessGroup> host,
                                                              psring::Device& device,
                                                              psring::ring::NcclOptions options) {
  return psring::ring::cuda::make_group(std::move(host), device, std::move(options)).release();
}
