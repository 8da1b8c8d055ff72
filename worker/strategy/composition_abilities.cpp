#include <utility>

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
  if (!plan_.consistency.each_push_updates) return;
  quiesce();
  parts_.peers->leave();
  parts_.parameters->refresh();
}

}  // namespace psring::worker
