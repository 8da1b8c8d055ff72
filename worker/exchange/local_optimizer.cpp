#include <algorithm>
#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/local_optimizer.h>
#include <psring/worker/exchange/planned.h>

namespace psring::worker {

using optim::ExactSum;

LocalOptimizer::LocalOptimizer(const OptimizerPlan& plan, const Layout& layout, MemoryLedger& ledger,
                               ring::ProcessGroup* owners, Device* device)
    : plan_(plan),
      scaler_(plan.loss_scaler),
      layout_(layout),
      trained_(layout.trained()),
      owners_(owners),
      state_(layout.units.size()) {
  check(owners == nullptr || owners->size() == layout.owners, "a layout for {} owners", layout.owners);
  if (device != nullptr)
    applier_ = planned(device) != nullptr ? planned(device)->make_applier() : optim::make_device_applier(*device);
  const auto buffer = [&](std::size_t bytes) { return make_buffer(bytes, Category::optimizer, ledger, device); };
  for (const UnitId unit : trained_) {
    const Range whole{0, owned(unit).size()};
    state_[unit] = optim::StateMemory(*plan.rule, whole.size(), buffer);
    for (std::size_t slot = 0; plan.initial_state && slot < plan.rule->slots(); ++slot) {
      std::vector<float> start(whole.size());
      plan.initial_state(unit, owned(unit), slot, start);
      state_[unit].write(slot, whole, start);
    }
  }
  if (layout.parameter_type == DType::f32 || !plan.master_copy) return;
  masters_.resize(layout.units.size());
  for (const UnitId unit : trained_) masters_[unit] = buffer(owned(unit).size() * sizeof(float));
}

void LocalOptimizer::start(const Plan& plan) {
  if (masters_.empty()) return;
  for (const UnitId unit : trained_) plan.initialise(unit, owned(unit), master(unit));
}

Range LocalOptimizer::owned(UnitId unit) const {
  if (owners_ == nullptr) return {0, layout_.units[unit].elements};
  return layout_.partition(unit).range(owners_->rank());
}

optim::Update LocalOptimizer::told(Step step, float gradient_scale) const {
  return {step.index + 1 - scaler_.skipped(), plan_.schedule->lr(plan_.lr, step.index), gradient_scale};
}

void LocalOptimizer::update(UnitId unit, Step step, UnitBuffers owned) {
  check(!whole_step(), "an update of one unit where the step has to be whole");
  if (!layout_.units[unit].trained) return;
  if (plan_.rule->layerwise()) return update_layerwise(told(step, 1), {unit, unit + 1}, std::span(&owned, 1));
  apply(told(step, 1), unit, owned);
}

void LocalOptimizer::apply(const optim::Update& update, UnitId unit, UnitBuffers owned) {
  if (applier_) {
    const auto formula = plan_.rule->formula(update);
    check(formula.has_value(), "an optimizer that no device applies");
    optim::DeviceRange range{
        .parameters = owned.parameters, .gradient = owned.gradients, .master = master(unit), .out = owned.parameters};
    if (plan_.rule->layerwise())
      range = {.parameters = weights(unit, owned), .gradient = owned.gradients, .master = {}, .out = owned.gradients};
    for (std::size_t slot = 0; slot < plan_.rule->slots(); ++slot)
      range.slot[slot] = state_[unit].slot(slot, {0, this->owned(unit).size()});
    return applier_->apply(*formula, range);
  }
  state_[unit].apply(update,
                     {.parameters = owned.parameters,
                      .gradient = owned.gradients,
                      .master = master(unit).as<float>(),
                      .state = {},
                      .out = plan_.rule->layerwise() ? owned.gradients : owned.parameters},
                     {0, this->owned(unit).size()});
}

void LocalOptimizer::update_all(Step step, std::span<const UnitBuffers> units) {
  float scale = 1;
  if (by_sum()) {
    ExactSum sum;
    std::vector<ConstElements> gradients;
    for (const UnitId unit : trained_) add_counted(unit, units[unit].gradients, gradients);
    optim::add_square_sums(gradients, sum, applier_.get());
    merge(std::span(&sum, 1), owners_);
    merge(std::span(&sum, 1), plan_.model_group);
    const bool finite = std::isfinite(sum.value());
    if (scaler_.active() && !finite) return scaler_.finished(false);
    scale = plan_.clip_norm > 0 ? optim::clip_scale(sum, plan_.clip_norm, scaler_.scale()) : 1 / scaler_.scale();
  }
  const optim::Update update = told(step, scale);
  if (scaler_.active()) scaler_.finished(true);
  if (plan_.rule->layerwise()) return update_layerwise(update, {0, units.size()}, units);
  for (const UnitId unit : trained_) apply(update, unit, units[unit]);
}

/// Adds the gradients of the tensors that this worker counts (TensorLayout::counted).
void LocalOptimizer::add_counted(UnitId unit, ConstElements gradients, std::vector<ConstElements>& all) const {
  const std::vector<TensorLayout>& tensors = layout_.units[unit].tensors;
  if (std::ranges::all_of(tensors, &TensorLayout::counted)) return all.push_back(gradients);
  const Range held = owned(unit);
  for (const TensorLayout& tensor : tensors) {
    const Range here = Range{tensor.offset, tensor.offset + tensor.spec.elements()}.intersect(held);
    if (tensor.counted && !here.empty()) all.push_back(gradients.subspan(here.begin - held.begin, here.size()));
  }
}

/// Every member of the group gets the sum over all members. Each broadcasts its own: a few bytes, which count as
/// control.
void LocalOptimizer::merge(std::span<ExactSum> sums, ring::ProcessGroup* group) const {
  if (group == nullptr || group->size() == 1) return;
  const std::size_t bytes = sums.size() * ExactSum::kBytes;
  std::vector<std::byte> wire(bytes * group->size());
  const auto of = [&](std::size_t rank, std::size_t i) {
    return std::span(wire).subspan(rank * bytes + i * ExactSum::kBytes).first<ExactSum::kBytes>();
  };
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].store(of(group->rank(), i));
  std::vector<ring::Work> works;
  for (std::size_t rank = 0; rank < group->size(); ++rank)
    works.push_back(group->broadcast({wire.data() + rank * bytes, bytes, {DType::u8}}, rank));
  for (ring::Work& work : works) work.wait();
  for (std::size_t rank = 0; rank < group->size(); ++rank)
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (rank != group->rank()) sums[i].merge(ExactSum::load(of(rank, i)));
}

}  // namespace psring::worker
