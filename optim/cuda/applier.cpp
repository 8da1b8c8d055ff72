#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/range.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/optim/cuda/applier.h>
#include <psring/optim/cuda/apply.h>

namespace psring::optim::cuda {
namespace {

class CudaApplier final : public DeviceApplier {
 public:
  explicit CudaApplier(Device& device) : device_(device) {}
  ~CudaApplier() override {
    if (sums_ != nullptr) device_.free(sums_);
  }

  void apply(const Formula& formula, const DeviceRange& range) override {
    if (range.gradient.empty()) return;
    psring::cuda::check_call(cuda::apply(psring::cuda::queue_of(device_), formula, range), "apply");
  }

  void square_sums(ConstElements values, std::span<double> sums) override {
    check(sums.size() == (values.size() + kCut - 1) / kCut, "{} sums of {} elements", sums.size(), values.size());
    if (sums.empty()) return;
    if (sums.size() > room_) {
      if (sums_ != nullptr) device_.free(std::exchange(sums_, nullptr));
      room_ = 0;
      sums_ = device_.allocate(sums.size_bytes());
      room_ = sums.size();
    }
    psring::cuda::check_call(
        cuda::square_sums(psring::cuda::queue_of(device_), values, reinterpret_cast<double*>(sums_)), "square_sums");
    device_.copy_bytes(sums_, sums.data(), sums.size_bytes());
    device_.wait(device_.mark());
  }

 private:
  Device& device_;
  std::byte* sums_ = nullptr;
  std::size_t room_ = 0;
};

}  // namespace

std::unique_ptr<DeviceApplier> make_applier(Device& device) { return std::make_unique<CudaApplier>(device); }

}  // namespace psring::optim::cuda
