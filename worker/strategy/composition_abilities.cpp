#include <utility>

#include <psring/common/proc/job.h>
#include <psring/worker/strategy/composition.h>

namespace psring::worker {

std::vector<optim::StatePart> Composition::state() {
  std::vector<optim::StatePart> all = parts_.updates->state();
  for (optim::StatePart& part : parts_.gradients->state()) all.push_back(std::move(part));
  return all;
}

std::optional<Resuming::Whole> Composition::whole_state() {
  if (!next_) return std::nullopt;
  auto state = parts_.updates->whole_state();
  if (!state) return std::nullopt;
  return Whole{*next_, std::move(*state)};
}

Step Composition::after(Step step) {
  const Step next{step.index + 1};
  if (plan_.consistency.backups == 0) return next;
  parts_.gradients->wait_for_updates();
  return parts_.peers->furthest(next);
}

void Composition::leave() {
  const bool units = plan_.consistency.each_push_updates;
  const bool rows = parts_.tables != nullptr && plan_.job.row_consistency() != "bsp";
  if (!units && !rows) return;
  quiesce();
  if (units) parts_.peers->leave();
  if (rows) parts_.tables->leave();
  if (units) parts_.parameters->refresh();
}

double Composition::staleness() {
  return parts_.peers->staleness() + (parts_.tables != nullptr ? parts_.tables->staleness() : 0);
}

}  // namespace psring::worker
