#include <psring/common/base/error.h>
#include <psring/server/device_updates.h>

namespace psring::server {

DeviceUpdates::DeviceUpdates(Device& device, MemoryLedger& ledger, const Options& options)
    : options_(options),
      type_(options.master_copy ? DType::f32 : options.parameter_type),
      applier_(optim::make_device_applier(device)) {
  check(!options.rule->layerwise(), "an optimizer that no device applies");
  const auto buffer = [&](std::size_t elements, DType type, Category category) {
    return Buffer(elements * size_bytes(type), category, ledger, device);
  };
  const bool apart = type_ != options.parameter_type;
  values_ = buffer(options.elements, type_, apart ? Category::optimizer : Category::parameters);
  for (std::size_t slot = 0; slot < options.rule->slots(); ++slot)
    state_[slot] = buffer(options.elements, DType::f32, Category::optimizer);
  gradients_ = options.keeps_gradients ? buffer(options.elements, options.gradient_type, Category::gradients)
                                       : buffer(options.largest, options.gradient_type, Category::communication);
  pushed_ = buffer(options.largest, options.gradient_type, Category::communication);
  sum_ = buffer(options.largest, DType::f32, Category::communication);
  if (apart) parameters_ = buffer(options.largest, options.parameter_type, Category::communication);
}

Elements DeviceUpdates::gradient(Range at) {
  const Elements all = gradients_.elements(options_.gradient_type);
  return options_.keeps_gradients ? all.part(at) : all.subspan(0, at.size());
}

void DeviceUpdates::begin_with(Range at, std::span<const float> values) {
  std::vector<std::byte> bytes(at.size() * size_bytes(type_));
  const Elements rounded(bytes.data(), at.size(), type_);
  narrow(values, rounded);
  copy(ConstElements(rounded), kept().part(at));
}

void DeviceUpdates::begin_with_state(std::size_t slot, Range at, std::span<const float> values) {
  copy(ConstElements(values), state_[slot].elements(DType::f32).part(at));
}

void DeviceUpdates::aggregate(std::span<const ConstElements> pushes, float scale, Range at, bool added) {
  const Elements pushed = scratch(pushed_, options_.gradient_type, at);
  const Elements sum = scratch(sum_, DType::f32, at);
  for (std::size_t k = 0; k < pushes.size(); ++k) {
    copy(pushes[k], pushed);
    if (k == 0)
      convert(pushed, sum);
    else
      add(sum, pushed);
  }
  multiply(sum, scale);
  if (!added) return convert(sum, gradient(at));
  convert(sum, pushed);
  add(gradient(at), pushed);
}

void DeviceUpdates::add_square_sums(optim::ExactSum& sum) {
  check(options_.keeps_gradients, "a sum over gradients that are not kept");
  const ConstElements all = gradients_.elements(options_.gradient_type);
  optim::add_square_sums(std::span(&all, 1), sum, applier_.get());
}

void DeviceUpdates::apply(const optim::Update& update, Range at, Elements out) {
  const auto formula = options_.rule->formula(update);
  check(formula.has_value(), "an optimizer that no device applies");
  const bool apart = parameters_.size_bytes() > 0;
  const Elements values = kept().part(at);
  const Elements parameters = apart ? scratch(parameters_, options_.parameter_type, at) : values;
  optim::DeviceRange range{
      .parameters = parameters, .gradient = gradient(at), .master = apart ? values : Elements(), .out = parameters};
  for (std::size_t slot = 0; slot < options_.rule->slots(); ++slot)
    range.slot[slot] = state_[slot].elements(DType::f32).part(at);
  applier_->apply(*formula, range);
  copy(ConstElements(parameters), out);
}

}  // namespace psring::server
