#include <algorithm>
#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/strategy/gradient_window.h>
#include <psring/worker/strategy/parameter_window.h>
#include <psring/worker/strategy/unit_order.h>

namespace psring::worker {

ParameterWindow::ParameterWindow(const Context& context, const JobOptions& job, Source source)
    : context_(context),
      micros_(job.accumulate),
      prefetch_(job.prefetch),
      reshard_(job.reshard_after_forward),
      source_(std::move(source)),
      whole_(context.layout.units.size()),
      staged_(context.layout.units.size()) {
  for (const auto& [unit, begins] : forward_events(context.unit_layers))
    if (begins) order_[0].push_back(unit);
  for (const auto& [unit, begins] : backward_events(context.backward_layers))
    if (begins) order_[1].push_back(unit);
}

/// The unit, and those that the pass acquires after it.
std::span<const UnitId> ParameterWindow::wanted(UnitId unit, Pass pass) const {
  const std::span<const UnitId> order = order_[pass == Pass::forward ? 0 : 1];
  const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), unit) - order.begin());
  return order.subspan(at, std::min(prefetch_ + 1, order.size() - at));
}

void ParameterWindow::acquire(UnitId unit, Pass pass) {
  for (const UnitId next : wanted(unit, pass)) {
    if (whole_[next].size_bytes() > 0) continue;
    whole_[next] = context_.buffer(context_.layout.parameter_bytes(next), Category::communication);
    context_.units[next].parameters = whole_[next].elements(context_.layout.parameter_type);
    staged_[next] = context_.staged_buffer(whole_[next].size_bytes());
    if (context_.stages())
      context_.units[next].staged_parameters = staged_[next].elements(context_.layout.parameter_type);
    source_.fetch(next, context_.units[next].parameters);
  }
  source_.wait(unit);
}

/// What backward does not need does not wait for it.
bool ParameterWindow::goes(UnitId unit, Pass released) const {
  return released == Pass::backward || reshard_ || context_.backward_layers[unit].empty();
}

void ParameterWindow::release(UnitId unit, Pass pass, bool training) {
  if (!training || goes(unit, pass)) drop(unit);
}

void ParameterWindow::drop(UnitId unit) {
  if (whole_[unit].size_bytes() == 0) return;
  source_.wait(unit);
  if (source_.leave) source_.leave(unit);
  whole_[unit] = Buffer();
  staged_[unit] = Buffer();
  context_.units[unit].parameters = {};
}

void ParameterWindow::drop_all() {
  for (UnitId unit = 0; unit < whole_.size(); ++unit) drop(unit);
}

std::uint64_t ParameterWindow::most_bytes(bool with_gradients) const {
  GradientWindow::Replay gradients(context_.layout);
  std::vector<bool> here(whole_.size(), false);
  std::uint64_t bytes = 0;
  std::uint64_t most = 0;
  const auto set = [&](UnitId unit, bool now) {
    if (here[unit] == now) return;
    here[unit] = now;
    const std::uint64_t of = context_.layout.parameter_bytes(unit);
    bytes = now ? bytes + of : bytes - of;
  };
  const auto replay = [&](Pass pass, const std::vector<UnitEvent>& events) {
    for (const auto& [unit, begins] : events) {
      if (begins) {
        for (const UnitId next : wanted(unit, pass)) set(next, true);
        if (pass == Pass::backward) gradients.open(unit);
      } else {
        if (pass == Pass::backward) gradients.depart(unit);
        if (goes(unit, pass)) set(unit, false);
      }
      most = std::max(most, bytes + (with_gradients ? gradients.bytes() : 0));
    }
  };
  for (std::size_t micro = 0; micro < micros_; ++micro) {
    replay(Pass::forward, forward_events(context_.unit_layers));
    replay(Pass::backward, backward_events(context_.backward_layers));
  }
  return most;
}

std::vector<UnitId> ParameterWindow::fetches() const {
  std::vector<UnitId> units;
  for (std::size_t micro = 0; micro < micros_; ++micro) {
    units.insert(units.end(), order_[0].begin(), order_[0].end());
    if (reshard_) units.insert(units.end(), order_[1].begin(), order_[1].end());
  }
  return units;
}

}  // namespace psring::worker
