#include <algorithm>
#include <utility>

#include <psring/worker/strategy/gradient_window.h>
#include <psring/worker/strategy/unit_order.h>

namespace psring::worker {

GradientWindow::GradientWindow(const Context& context, std::function<void(UnitId, ConstElements)> land)
    : context_(context),
      land_(std::move(land)),
      whole_(context.layout.units.size()),
      staged_(context.layout.units.size()) {}

/// What a unit had in the micro-batch before has to be gone, too.
void GradientWindow::open(UnitId unit) {
  if (!context_.layout.units[unit].trained) return;
  while (flights_.size() > 1 || whole_[unit].size_bytes() > 0) land_first();
  whole_[unit] = context_.buffer(context_.layout.gradient_bytes(unit), Category::communication);
  context_.units[unit].gradients = values(unit);
  staged_[unit] = context_.staged_gradients(whole_[unit].size_bytes());
  context_.units[unit].staged_gradients = staged_[unit].elements(context_.layout.gradient_type);
}

Elements GradientWindow::depart(UnitId unit) {
  flights_.push_back(unit);
  context_.units[unit].gradients = {};
  return values(unit);
}

void GradientWindow::land_first() {
  const UnitId unit = flights_.front();
  land_(unit, values(unit));
  whole_[unit] = Buffer();
  staged_[unit] = Buffer();
  flights_.pop_front();
}

void GradientWindow::drain() {
  while (!flights_.empty()) land_first();
}

void GradientWindow::Replay::open(UnitId unit) {
  if (!layout_.units[unit].trained) return;
  while (flights_.size() > 1 || std::find(flights_.begin(), flights_.end(), unit) != flights_.end()) {
    bytes_ -= of(flights_.front());
    flights_.pop_front();
  }
  bytes_ += of(unit);
}

std::size_t GradientWindow::Replay::most_bytes(const Layout& layout, std::span<const Range> backward_layers,
                                               std::size_t passes) {
  Replay replay(layout);
  std::size_t most = 0;
  for (std::size_t pass = 0; pass < passes; ++pass)
    for (const auto& [unit, begins] : backward_events(backward_layers)) {
      if (begins)
        replay.open(unit);
      else
        replay.depart(unit);
      most = std::max(most, replay.bytes());
    }
  return most;
}

}  // namespace psring::worker
