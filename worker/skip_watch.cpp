#include <psring/common/base/error.h>
#include <psring/worker/skip_watch.h>

namespace psring::worker {

void SkipWatch::look(std::uint64_t step, const optim::LossScaler& scaler) {
  if (!scaler.active() || step < next_) return;
  next_ = step + 1;
  skipped_.push_back(scaler.skipped());
  if (skipped_.size() <= kSteps) return;
  const std::uint64_t skipped = skipped_.back() - skipped_.front();
  skipped_.pop_front();
  if (skipped > kMostSkipped)
    fail(ErrorKind::data,
         "step {}: {} of the last {} steps were skipped, as their gradients were not finite; the loss scale is {:g}: a "
         "lower --lr, --clip-norm, a lower --loss-scale or --precision bf16 may help",
         step, skipped, kSteps, scaler.scale());
}

}  // namespace psring::worker
