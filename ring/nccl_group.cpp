#include <psring/common/device/cuda_module.h>
#include <psring/ring/nccl_group.h>

namespace psring::ring {

std::unique_ptr<ProcessGroup> make_nccl_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options) {
  using Make = ProcessGroup* (*)(std::unique_ptr<ProcessGroup>, Device&, NcclOptions);
  const auto make = reinterpret_cast<Make>(cuda_symbol("psring_make_nccl_group"));
  return std::unique_ptr<ProcessGroup>(make(std::move(host), device, std::move(options)));
}

}  // namespace psring::ring
