#include <algorithm>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::worker {

using Kind = StageAction::Kind;

PipelineSchedule parse_pipeline_schedule(std::string_view name) {
  if (name == "gpipe") return PipelineSchedule::gpipe;
  if (name == "1f1b") return PipelineSchedule::one_forward_one_backward;
  fail(ErrorKind::usage, "--pipeline-schedule: expected gpipe or 1f1b, got '{}'", name);
}

StagePlan plan_stage(PipelineSchedule schedule, std::size_t stage, std::size_t stages, std::size_t micros) {
  check(stage < stages && micros > 0, "stage {} of {}, {} micro-batches", stage, stages, micros);
  StagePlan plan;
  std::size_t forwards = 0;
  std::size_t backwards = 0;
  const auto forward = [&] {
    if (stage > 0) plan.push_back({Kind::receive_input, forwards});
    plan.push_back({Kind::forward, forwards});
    if (stage + 1 < stages) plan.push_back({Kind::send_output, forwards});
    ++forwards;
  };
  const auto backward = [&] {
    if (stage + 1 < stages) plan.push_back({Kind::receive_gradient, backwards});
    plan.push_back({Kind::backward, backwards});
    if (stage > 0) plan.push_back({Kind::send_gradient, backwards});
    ++backwards;
  };
  const bool all_forwards = schedule == PipelineSchedule::gpipe && stages > 1;
  const std::size_t ahead = all_forwards ? micros : std::min(micros, stages - 1 - stage);
  while (forwards < ahead) forward();
  while (forwards < micros) {
    forward();
    backward();
  }
  while (backwards < micros) backward();
  return plan;
}

std::size_t most_in_flight(const StagePlan& plan) {
  std::size_t now = 0;
  std::size_t most = 0;
  for (const StageAction& action : plan) {
    // The activations' memory is in use from the moment that the input arrives in it.
    if (action.kind == Kind::forward) most = std::max(most, ++now);
    if (action.kind == Kind::backward) --now;
  }
  return most;
}

double predicted_bubble(std::size_t stages, std::size_t micros) {
  return static_cast<double>(stages - 1) / static_cast<double>(micros + stages - 1);
}

std::string describe(std::span<const StagePlan> plans) {
  std::string text;
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    text += fmt::format("stage {}:", stage);
    for (const StageAction& action : plans[stage])
      if (action.kind == Kind::forward || action.kind == Kind::backward)
        text += fmt::format(" {}{}", action.kind == Kind::forward ? 'F' : 'B', action.micro);
    text += "\n";
  }
  return text;
}

}  // namespace psring::worker
