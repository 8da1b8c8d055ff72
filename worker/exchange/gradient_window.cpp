#include <algorithm>
#include <utility>

#include <psring/worker/exchange/gradient_window.h>

namespace psring::worker {
namespace {

class WindowHolding final : public Holding {
 public:
  WindowHolding(const Layout& layout, bool staged) : layout_(layout), staged_(staged) {}

  void acquire(UnitId unit, Pass pass) override {
    if (pass == Pass::forward || !layout_.units[unit].trained) return;
    while (in_flight_.size() > 1 || std::find(in_flight_.begin(), in_flight_.end(), unit) != in_flight_.end()) {
      bytes_ -= layout_.gradient_bytes(in_flight_.front());
      in_flight_.pop_front();
    }
    bytes_ += layout_.gradient_bytes(unit);
  }
  void release(UnitId unit, Pass pass) override {
    if (pass == Pass::backward && layout_.units[unit].trained) in_flight_.push_back(unit);
  }
  std::uint64_t bytes() const override { return bytes_; }
  std::uint64_t staged_bytes() const override { return staged_ ? bytes_ : 0; }

 private:
  const Layout& layout_;
  const bool staged_;
  std::uint64_t bytes_ = 0;
  std::deque<UnitId> in_flight_;
};

}  // namespace

GradientWindow::GradientWindow(const Plan& plan, const World& world, std::function<void(UnitId)> land)
    : plan_(plan), world_(world), land_(std::move(land)), whole_(plan, world, Presence::Values::gradients) {
  for (UnitBuffers& unit : world.units) unit.each_micro_alone = true;
}

/// The unit's gradient of the micro-batch before has to be gone, too.
void GradientWindow::open(UnitId unit) {
  if (!plan_.layout.units[unit].trained) return;
  while (in_flight_.size() > 1 || whole_.present(unit)) land_first();
  whole_.allocate(unit);
}

Elements GradientWindow::depart(UnitId unit) {
  in_flight_.push_back(unit);
  world_.units[unit].gradients = {};
  return whole_.values(unit);
}

void GradientWindow::land_first() {
  const UnitId unit = in_flight_.front();
  land_(unit);
  whole_.free(unit);
  in_flight_.pop_front();
}

void GradientWindow::drain() {
  while (!in_flight_.empty()) land_first();
}

std::unique_ptr<Holding> GradientWindow::holding() const {
  return std::make_unique<WindowHolding>(plan_.layout, world_.compressor == nullptr);
}

}  // namespace psring::worker
