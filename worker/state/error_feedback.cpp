#include <cmath>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/state/error_feedback.h>

namespace psring::worker {

ErrorFeedback::ErrorFeedback(const Layout& layout, MemoryLedger& ledger, Device* device)
    : layout_(layout), ledger_(ledger), device_(device) {
  residual_[0] = make_buffer(layout.trained_elements() * sizeof(float), Category::optimizer, ledger, device);
  std::size_t elements = 0;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    offsets_.push_back(elements);
    elements += layout.trained_elements(unit);
  }
}

void ErrorFeedback::follow(std::function<optim::LossScaler()> scaler, bool skips) {
  scaler_ = std::move(scaler);
  if (!skips) return;
  residual_[1] = make_buffer(residual_[0].size_bytes(), Category::optimizer, ledger_, device_);
  if (device_ != nullptr) applier_ = optim::make_device_applier(*device_);
}

void ErrorFeedback::settle() {
  if (!scaler_) return;
  const optim::LossScaler scaler = scaler_();
  const bool ended = std::exchange(under_way_, false);
  if (ended && skips() && scaler.skipped() == steps_skipped_ && pending_is_finite()) settled_ = pending();
  steps_skipped_ = scaler.skipped();
  const float before = std::exchange(loss_scale_, scaler.scale());
  // Both are powers of two: the quotient is exact.
  if (before != 0 && before != loss_scale_) multiply(residual_[settled_].elements(DType::f32), loss_scale_ / before);
}

bool ErrorFeedback::pending_is_finite() {
  optim::ExactSum sum;
  const ConstElements values = residual_[pending()].elements(DType::f32);
  optim::add_square_sums(std::span(&values, 1), sum, applier_.get());
  return std::isfinite(sum.value());
}

Elements ErrorFeedback::add(std::size_t unit, Range range, std::uint64_t step, std::size_t micro,
                            ConstElements gradient) {
  if (!under_way_ || step != step_) settle();
  under_way_ = true;
  step_ = step;
  const Elements sum = residual(unit, pending()).part(range);
  if (skips() && micro == 0) copy(residual(unit).part(range), sum);
  psring::add(sum, gradient);
  return sum;
}

Elements ErrorFeedback::residual(std::size_t unit, std::size_t which) {
  check(layout_.units[unit].trained, "unit {} is frozen: it has no residual", unit);
  return residual_[which].elements(DType::f32).subspan(offsets_[unit], layout_.units[unit].elements);
}

}  // namespace psring::worker
