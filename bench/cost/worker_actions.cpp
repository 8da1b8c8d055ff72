#include <algorithm>

#include <psring/bench/cost/worker_actions.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::bench {

using worker::Pass;
using Kind = WorkerAction::Kind;

WorkerActions::WorkerActions(const TimedJob& job)
    : job_(job),
      here_(job.work.layout.units.size()),
      updated_(job.work.layout.units.size()),
      micros_(job.work.layout.units.size()) {
  for (const auto& [unit, begins] : worker::forward_events(job.work.unit_layers))
    if (begins) order_[0].push_back(unit);
  for (const auto& [unit, begins] : worker::backward_events(job.work.backward_layers))
    if (begins) order_[1].push_back(unit);
}

void WorkerActions::compute_until(double now) {
  if (now > now_) actions_.push_back({.kind = Kind::compute, .seconds = now - now_});
  now_ = now;
}

void WorkerActions::begin_step() {
  std::fill(here_.begin(), here_.end(), false);
  std::fill(updated_.begin(), updated_.end(), false);
  std::fill(micros_.begin(), micros_.end(), std::size_t{0});
}

Moments WorkerActions::acquire(std::size_t unit, Pass pass, const Moments& now) {
  compute_until(now.last());
  if (job_.kind.gathers) {
    const std::vector<std::size_t>& order = order_[pass == Pass::forward ? 0 : 1];
    auto next = std::find(order.begin(), order.end(), unit);
    for (std::size_t i = 0; i <= job_.job.prefetch && next != order.end(); ++i, ++next)
      if (!here_[*next]) {
        actions_.push_back({.kind = Kind::pull, .unit = *next});
        here_[*next] = true;
      }
  } else if (pass == Pass::backward) {
    return now;
  }
  actions_.push_back({.kind = Kind::await_values, .unit = unit});
  const bool updates = job_.job.optimizer_on != "server" && pass == Pass::forward && !updated_[unit];
  updated_[unit] = updated_[unit] || updates;
  return updates ? now + job_.update_s(static_cast<double>(job_.work.layout.trained_elements(unit))) : now;
}

void WorkerActions::release(std::size_t unit, Pass pass) {
  const bool drops =
      pass == Pass::backward || job_.job.reshard_after_forward || job_.work.backward_layers[unit].empty();
  if (drops) here_[unit] = false;
}

void WorkerActions::await_first_push() {
  actions_.push_back({.kind = Kind::await_pushes, .unit = window_.front()});
  window_.pop_front();
}

Moments WorkerActions::open(std::size_t unit, const Moments& now) {
  compute_until(now.last());
  if (!job_.kind.at_owner) return now;
  while (window_.size() > 1 || std::find(window_.begin(), window_.end(), unit) != window_.end()) await_first_push();
  return now;
}

void WorkerActions::ready(std::size_t unit, bool last_micro, const Moments& now) {
  compute_until(now.last());
  if (!job_.kind.at_owner && !last_micro) return;
  const bool wants = !job_.kind.gathers && last_micro;
  actions_.push_back(
      {.kind = Kind::push, .unit = unit, .micro = micros_[unit]++, .pulls = wants && !job_.kind.at_owner});
  if (!job_.kind.at_owner) return;
  window_.push_back(unit);
  if (wants) actions_.push_back({.kind = Kind::pull, .unit = unit, .after_update = true});
}

Moments WorkerActions::finish(const Moments& now) {
  compute_until(now.last());
  while (!window_.empty()) await_first_push();
  return now;
}

}  // namespace psring::bench
