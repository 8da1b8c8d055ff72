#include <utility>

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
    const Device::Section section(device_, "update", range.gradient.size());
    psring::cuda::check_call(cuda::apply(psring::cuda::queue_of(device_), formula, range), "apply");
  }

  std::span<const double> square_sums(std::span<const ConstElements> vectors) override {
    std::size_t blocks = 0;
    for (const ConstElements& values : vectors) blocks += blocks_of(values);
    reserve(blocks);
    auto* const sums = reinterpret_cast<double*>(sums_);
    std::size_t done = 0;
    for (const ConstElements& values : vectors) {
      if (!values.empty())
        psring::cuda::check_call(cuda::square_sums(psring::cuda::queue_of(device_), values, sums + done),
                                 "square_sums");
      done += blocks_of(values);
    }
    device_.copy_bytes(sums_, on_host_.get(), blocks * sizeof(double));
    device_.wait(device_.mark());
    return {reinterpret_cast<const double*>(on_host_.get()), blocks};
  }

 private:
  static std::size_t blocks_of(const ConstElements& values) { return (values.size() + kCut - 1) / kCut; }
  void reserve(std::size_t blocks) {
    if (blocks <= room_) return;
    if (sums_ != nullptr) device_.free(std::exchange(sums_, nullptr));
    room_ = 0;
    sums_ = device_.allocate(blocks * sizeof(double), Category::optimizer);
    on_host_ = device_.allocate_pinned(blocks * sizeof(double));
    room_ = blocks;
  }

  Device& device_;
  std::byte* sums_ = nullptr;
  std::shared_ptr<std::byte> on_host_;  ///< pinned
  std::size_t room_ = 0;                ///< capacity of both buffers
};

}  // namespace

std::unique_ptr<DeviceApplier> make_applier(Device& device) { return std::make_unique<CudaApplier>(device); }

}  // namespace psring::optim::cuda
