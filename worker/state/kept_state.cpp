#include <algorithm>
#include <utility>

#include <psring/optim/checkpoint/shard.h>
#include <psring/worker/state/kept_state.h>

namespace psring::worker {

bool KeptState::is_kept(const JobOptions& job) { return job.recovery == "workers" || job.recovery == "both"; }

std::optional<KeptState> KeptState::of(const Abilities& able, const Layout& layout) {
  if (able.resuming == nullptr) return std::nullopt;
  auto whole = able.resuming->whole_state();
  if (!whole) return std::nullopt;
  KeptState kept{whole->next.index, able.loss_scaler().state(), {}};
  kept.units.resize(layout.units.size());
  for (const optim::StatePart& part : whole->parts) {
    const auto unit = static_cast<std::size_t>(part.unit - layout.units.data());
    std::vector<float>& values = kept.units[unit][part.array];
    values.resize(layout.units[unit].elements);
    widen(part.values, std::span(values).subspan(part.range.begin, part.range.size()));
  }
  return kept;
}

void KeptState::restore(Plan& plan) const {
  const auto read = [this](UnitId unit, const std::string& array, Range range, std::span<float> out) {
    const std::vector<float>& values = units[unit].at(array);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(range.begin), range.size(), out.begin());
  };
  plan.first_step = step;
  plan.optimizer.loss_scaler.restore(scalars);
  plan.initial = [read](UnitId unit, Range range, std::span<float> out) { read(unit, optim::kValues, range, out); };
  plan.optimizer.initial_state = [read](UnitId unit, Range range, std::size_t slot, std::span<float> out) {
    read(unit, optim::slot_array(slot), range, out);
  };
}

void share_newest(ring::ProcessGroup& group, const Layout& layout, std::size_t slots,
                  const std::map<std::string, double>& scalars, std::optional<KeptState>& kept) {
  // The next step plus one; 0 stands for a worker without a kept state.
  std::vector<ring::Located<double>> furthest(1);
  furthest[0] = {kept ? static_cast<double>(kept->step) + 1 : 0, static_cast<std::int64_t>(group.rank())};
  group.all_reduce(std::span(furthest), ring::ReduceOp::Kind::maxloc).wait();
  if (furthest[0].value == 0) return;
  const auto root = static_cast<std::size_t>(furthest[0].index);
  KeptState received{static_cast<std::uint64_t>(furthest[0].value) - 1, scalars, {}};
  KeptState& state = root == group.rank() ? *kept : received;
  state.units.resize(layout.units.size());
  std::vector<double> numbers;
  for (const auto& [name, value] : state.scalars) numbers.push_back(value);
  if (!numbers.empty()) group.broadcast(std::span(numbers), root).wait();
  auto number = numbers.begin();
  for (auto& [name, value] : state.scalars) value = *number++;
  for (UnitId unit = 0; unit < layout.units.size(); ++unit) {
    const auto give = [&](const std::string& array) {
      std::vector<float>& values = state.units[unit][array];
      values.resize(layout.units[unit].elements);
      group.broadcast(std::span(values), root).wait();
    };
    give(optim::kValues);
    for (std::size_t slot = 0; layout.units[unit].trained && slot < slots; ++slot) give(optim::slot_array(slot));
  }
  if (root != group.rank()) kept = std::move(received);
}

}  // namespace psring::worker
