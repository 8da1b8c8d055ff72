#include <algorithm>

#include <fmt/format.h>

#include <psring/common/base/error.h>
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

double SimulatedPipeline::bubble() const {
  double computed = 0;
  for (const double each : busy) computed += each;
  return 1 - computed / (seconds * static_cast<double>(busy.size()));
}

namespace {

/// The state of a simulated run: how far each stage has come, and which messages were sent.
class Simulation {
 public:
  Simulation(std::span<const StagePlan> plans, const StageTimes& times, Sends sends)
      : plans_(plans), times_(times), sends_(sends), next_(plans.size(), 0), clock_(plans.size(), 0) {
    outputs_.resize(plans.size());
    gradients_.resize(plans.size());
  }

  SimulatedPipeline run() {
    SimulatedPipeline result;
    result.busy.assign(plans_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < plans_.size(); ++stage)
        while (next_[stage] < plans_[stage].size() && step(stage, result.busy[stage])) moved = true;
    }
    result.complete = true;
    for (std::size_t stage = 0; stage < plans_.size(); ++stage)
      result.complete = result.complete && next_[stage] == plans_[stage].size();
    result.seconds = *std::max_element(clock_.begin(), clock_.end());
    return result;
  }

 private:
  static bool is_send(Kind kind) { return kind == Kind::send_output || kind == Kind::send_gradient; }
  static bool is_receive(Kind kind) { return kind == Kind::receive_input || kind == Kind::receive_gradient; }
  /// Do both concern the neighbour after (or both the one before)?
  static bool same_neighbour(Kind send, Kind receive) {
    return (send == Kind::send_output) == (receive == Kind::receive_gradient);
  }

  /// Makes the stage's next action if it can be made now.
  bool step(std::size_t stage, double& busy) {
    const StageAction& action = plans_[stage][next_[stage]];
    if (action.kind == Kind::forward || action.kind == Kind::backward) {
      const double takes = action.kind == Kind::forward ? times_.forward[stage] : times_.backward[stage];
      clock_[stage] += takes;
      busy += takes;
      ++next_[stage];
      return true;
    }
    if (is_receive(action.kind)) return receive(stage, action);
    return sends_ == Sends::buffered ? send(stage, action) : rendezvous(stage);
  }

  std::vector<double>& box(std::size_t stage, Kind kind) {
    return kind == Kind::send_output || kind == Kind::receive_gradient
               ? (kind == Kind::send_output ? outputs_[stage] : gradients_[stage + 1])
               : (kind == Kind::send_gradient ? gradients_[stage] : outputs_[stage - 1]);
  }

  /// The times at which a stage's messages arrive, by micro-batch; they are read by the neighbour.
  bool send(std::size_t stage, const StageAction& action) {
    box(stage, action.kind).push_back(clock_[stage] + times_.message);
    ++next_[stage];
    return true;
  }

  bool receive(std::size_t stage, const StageAction& action) {
    const std::vector<double>& arrivals = box(stage, action.kind);
    if (action.micro >= arrivals.size()) return false;
    clock_[stage] = std::max(clock_[stage], arrivals[action.micro]);
    ++next_[stage];
    return true;
  }

  /// The message that a stage waits for, if it stands at a receive, or at a send that forms an exchange with it.
  const StageAction* awaited(std::size_t stage) const {
    const StagePlan& plan = plans_[stage];
    const std::size_t at = next_[stage];
    if (at >= plan.size()) return nullptr;
    if (is_receive(plan[at].kind)) return &plan[at];
    const bool pair = sends_ == Sends::exchanged && is_send(plan[at].kind) && at + 1 < plan.size() &&
                      is_receive(plan[at + 1].kind) && same_neighbour(plan[at].kind, plan[at + 1].kind);
    return pair ? &plan[at + 1] : nullptr;
  }

  /// A send without a buffer: both sides have to be there.
  bool rendezvous(std::size_t stage) {
    const StageAction& action = plans_[stage][next_[stage]];
    const std::size_t other = action.kind == Kind::send_output ? stage + 1 : stage - 1;
    const StageAction* const theirs = awaited(other);
    const Kind wanted = action.kind == Kind::send_output ? Kind::receive_input : Kind::receive_gradient;
    if (theirs == nullptr || theirs->kind != wanted || theirs->micro != action.micro) return false;
    clock_[stage] = std::max(clock_[stage], clock_[other]);
    return send(stage, action);
  }

  const std::span<const StagePlan> plans_;
  const StageTimes& times_;
  const Sends sends_;
  std::vector<std::size_t> next_;               ///< by stage: index in its plan
  std::vector<double> clock_;                   ///< by stage
  std::vector<std::vector<double>> outputs_;    ///< by sender and micro-batch: when the message arrives
  std::vector<std::vector<double>> gradients_;  ///< the same
};

}  // namespace

SimulatedPipeline simulate_pipeline(std::span<const StagePlan> plans, const StageTimes& times, Sends sends) {
  check(times.forward.size() == plans.size() && times.backward.size() == plans.size(), "times of {} stages, of {}",
        times.forward.size(), plans.size());
  return Simulation(plans, times, sends).run();
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
