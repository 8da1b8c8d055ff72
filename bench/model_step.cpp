#include <numeric>

#include <psring/bench/model_step.h>
#include <psring/common/base/rng.h>

namespace psring::bench {

ModelStep::ModelStep(const worker::Model& model, std::size_t batch, DType type, std::size_t threads)
    : flat_(model, worker::group_layers(model, "layer")),
      binding_(flat_),
      kernels_(make_cpu_kernels(threads, type)),
      network_(model, *kernels_, ledger_, {.max_batch = batch, .types = {type, type, type}}),
      scale_(1.0F / static_cast<float>(batch * model.rows_per_sample)) {
  const Layout layout = flat_.layout(1);
  for (std::size_t unit = 0; unit < flat_.units(); ++unit) {
    const std::size_t elements = layout.units[unit].elements;
    std::vector<float> values(elements);
    initialise(layout.units[unit], {0, elements}, 1, values);
    parameters_.emplace_back(elements * size_bytes(type));
    gradients_.emplace_back(elements * size_bytes(type));
    const Elements parameters(parameters_.back().data(), elements, type);
    convert(std::span<const float>(values), parameters);
    binding_.bind_parameters(unit, parameters);
    binding_.bind_gradients(unit, Elements(gradients_.back().data(), elements, type));
  }
  network_.begin(batch);
  add_tables(model, batch);
  const CounterRng rng({.seed = 12});
  const std::span<float> input = network_.input().span();
  for (std::size_t i = 0; i < input.size(); ++i)
    input[i] = model.tokens ? static_cast<float>(rng.bits(i) % model.classes) : rng.uniform(i);
  const std::span<std::int32_t> targets = network_.targets();
  if (model.classes > 0)
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets[i] = static_cast<std::int32_t>(rng.bits(input.size() + i) % model.classes);
}

void ModelStep::add_tables(const worker::Model& model, std::size_t batch) {
  std::vector<worker::TableView> views;
  for (const worker::TableSpec& table : model.tables) {
    const std::size_t bags = batch * table.features.size();
    Table& own = tables_.emplace_back();
    own.rows.assign(bags * table.width, 0.01F);
    own.gradients.assign(bags * table.width, 0.0F);
    own.offsets.resize(bags + 1);
    own.lookups.resize(bags);
    std::iota(own.offsets.begin(), own.offsets.end(), std::uint32_t{0});
    std::iota(own.lookups.begin(), own.lookups.end(), std::uint32_t{0});
    views.push_back({.rows = {own.rows.data(), bags, table.width},
                     .gradients = {own.gradients.data(), bags, table.width},
                     .offsets = own.offsets,
                     .lookups = own.lookups});
  }
  network_.set_tables(views);
}

double ModelStep::run() {
  begin();
  for (std::size_t i = 0; i < layers(); ++i) forward(i);
  const double sum = loss();
  for (std::size_t i = layers(); i-- > 0;) backward(i);
  return sum;
}

}  // namespace psring::bench
