#include <cstring>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/server/store/device_applier.h>

namespace psring::server {

DeviceApplier::DeviceApplier(const ShardOptions& options, const Layout& layout, std::size_t largest,
                             MemoryLedger& ledger)
    : options_(options),
      parameter_type_(layout.parameter_type),
      gradient_type_(layout.gradient_type),
      master_copy_(options.keeps_master(layout)),
      keeps_mean_(options.keeps_mean(layout)),
      value_type_(master_copy_ ? DType::f32 : parameter_type_),
      applier_(optim::make_device_applier(*options.device)) {
  check(!options.optimizer->layerwise(), "an optimizer that no device applies");
  const auto buffer = [&](std::size_t elements, DType type, Category category) {
    return Buffer(elements * size_bytes(type), category, ledger, *options.device);
  };
  const std::size_t elements = layout.owned_trained_elements(options.rank);
  values_ = buffer(elements, value_type_, master_copy_ ? Category::optimizer : Category::parameters);
  for (std::size_t slot = 0; slot < options.optimizer->slots(); ++slot)
    state_[slot] = buffer(elements, DType::f32, Category::optimizer);
  gradients_ = keeps_mean_ ? buffer(elements, gradient_type_, Category::gradients)
                           : buffer(largest, gradient_type_, Category::communication);
  pushed_ = buffer(largest, gradient_type_, Category::communication);
  sum_ = buffer(largest, DType::f32, Category::communication);
  if (master_copy_) parameters_ = buffer(largest, parameter_type_, Category::communication);
}

Elements DeviceApplier::mean(Range place) {
  return keeps_mean_ ? gradients_.elements(gradient_type_).part(place) : scratch(gradients_, gradient_type_, place);
}

void DeviceApplier::begin_with(Range place, std::span<const float> values) {
  std::vector<std::byte> bytes(place.size() * size_bytes(value_type_));
  const Elements rounded(bytes.data(), place.size(), value_type_);
  narrow(values, rounded);
  copy(ConstElements(rounded), this->values(place));
}

void DeviceApplier::begin_with_state(std::size_t slot, Range place, std::span<const float> values) {
  copy(ConstElements(values), state(slot, place));
}

void DeviceApplier::apply_pushed(std::span<const ConstElements> gradients, const PieceUpdate& update) {
  add_to_mean(gradients, update.place, true);
  apply_mean(update);
}

void DeviceApplier::add_to_mean(std::span<const ConstElements> gradients, Range place, bool first) {
  const Elements pushed = scratch(pushed_, gradient_type_, place);
  const Elements sum = scratch(sum_, DType::f32, place);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    copy(gradients[k], pushed);
    if (k == 0)
      convert(pushed, sum);
    else
      add(sum, pushed);
  }
  multiply(sum, *options_.aggregator->sum_times(gradients.size()));
  if (first) return convert(sum, mean(place));
  convert(sum, pushed);
  add(mean(place), pushed);
}

void DeviceApplier::add_square_sums(optim::ExactSum& sum) {
  check(keeps_mean_, "a sum over gradients that are not kept");
  const ConstElements all = gradients_.elements(gradient_type_);
  optim::add_square_sums(std::span(&all, 1), sum, applier_.get());
}

void DeviceApplier::apply_mean(const PieceUpdate& update) {
  const auto formula = options_.optimizer->formula(update.terms);
  check(formula.has_value(), "an optimizer that no device applies");
  const Range place = update.place;
  const Elements parameters = master_copy_ ? scratch(parameters_, parameter_type_, place) : values(place);
  optim::DeviceRange range{
      .parameters = parameters, .gradient = mean(place), .master = master(place), .out = parameters};
  for (std::size_t slot = 0; slot < options_.optimizer->slots(); ++slot) range.slot[slot] = state(slot, place);
  applier_->apply(*formula, range);
  copy(ConstElements(parameters), update.next);
  for (std::byte* out : update.copies) std::memcpy(out, update.next.data(), update.next.size_bytes());
}

}  // namespace psring::server
