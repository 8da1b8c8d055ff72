#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/worker/exchange/fetch_schedule.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::worker {
namespace {

class Replay final : public Holding {
 public:
  Replay(const Layout& layout, const FetchSchedule& schedule)
      : layout_(layout), schedule_(schedule), here_(layout.units.size(), false) {}

  void acquire(UnitId unit, Pass pass) override {
    for (const UnitId next : schedule_.wanted(unit, pass)) set(next, true);
  }
  void release(UnitId unit, Pass pass) override {
    if (schedule_.drops(unit, pass)) set(unit, false);
  }
  std::uint64_t bytes() const override { return bytes_; }

 private:
  void set(UnitId unit, bool now) {
    if (here_[unit] == now) return;
    here_[unit] = now;
    bytes_ = now ? bytes_ + layout_.parameter_bytes(unit) : bytes_ - layout_.parameter_bytes(unit);
  }

  const Layout& layout_;
  const FetchSchedule& schedule_;
  std::vector<bool> here_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

FetchSchedule::FetchSchedule(const Plan& plan) : plan_(plan) {
  for (const auto& [unit, begins] : forward_events(plan.unit_layers))
    if (begins) order_[0].push_back(unit);
  for (const auto& [unit, begins] : backward_events(plan.backward_layers))
    if (begins) order_[1].push_back(unit);
}

std::span<const UnitId> FetchSchedule::wanted(UnitId unit, Pass pass) const {
  const std::span<const UnitId> order = order_[pass == Pass::forward ? 0 : 1];
  const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), unit) - order.begin());
  return order.subspan(at, std::min(plan_.job.prefetch + 1, order.size() - at));
}

/// A unit that backward does not need is not kept for it.
bool FetchSchedule::drops(UnitId unit, Pass released) const {
  return released == Pass::backward || plan_.job.reshard_after_forward || plan_.backward_layers[unit].empty();
}

std::vector<UnitId> FetchSchedule::fetches_of_step() const {
  std::vector<UnitId> units;
  std::vector<bool> here(plan_.layout.units.size(), false);
  for (const Pass pass : plan_.passes)
    for (const auto& [unit, begins] :
         pass == Pass::forward ? forward_events(plan_.unit_layers) : backward_events(plan_.backward_layers)) {
      if (!begins) {
        if (drops(unit, pass)) here[unit] = false;
        continue;
      }
      for (const UnitId next : wanted(unit, pass)) {
        if (!here[next]) units.push_back(next);
        here[next] = true;
      }
    }
  return units;
}

std::unique_ptr<Holding> FetchSchedule::holding() const { return std::make_unique<Replay>(plan_.layout, *this); }

}  // namespace psring::worker
