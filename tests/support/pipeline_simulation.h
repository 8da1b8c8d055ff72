#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::worker {

/// How a simulated message leaves.
enum class Sends : std::uint8_t {
  buffered,   ///< a send returns at once
  exchanged,  ///< a send returns when its receiver has reached the receive; it forms one exchange with the following
              ///< receive from the same neighbour
  blocking,   ///< a send returns when its receiver has come to the receive
};

/// The time of a pass at each stage, and of a message.
struct StageTimes {
  std::vector<double> forward;
  std::vector<double> backward;
  double message = 0;
};

struct SimulatedPipeline {
  bool complete = false;     ///< all stages came to the end of their plans; else they wait for each other
  double seconds = 0;        ///< until the last stage's end
  std::vector<double> busy;  ///< by stage: seconds that it computed
  /// The share of all stages' time in which they did not compute.
  double bubble() const {
    double computed = 0;
    for (const double each : busy) computed += each;
    return 1 - computed / (seconds * static_cast<double>(busy.size()));
  }
};

/// The state of a simulated run: how far each stage has come, and which messages were sent.
class PipelineSimulation {
 public:
  PipelineSimulation(std::span<const StagePlan> plans, const StageTimes& times, Sends sends)
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
  static bool is_send(StageAction::Kind kind) {
    return kind == StageAction::Kind::send_output || kind == StageAction::Kind::send_gradient;
  }
  static bool is_receive(StageAction::Kind kind) {
    return kind == StageAction::Kind::receive_input || kind == StageAction::Kind::receive_gradient;
  }
  /// Do both concern the neighbour after (or both the one before)?
  static bool same_neighbour(StageAction::Kind send, StageAction::Kind receive) {
    return (send == StageAction::Kind::send_output) == (receive == StageAction::Kind::receive_gradient);
  }

  /// Makes the stage's next action if it can be made now.
  bool step(std::size_t stage, double& busy) {
    const StageAction& action = plans_[stage][next_[stage]];
    if (action.kind == StageAction::Kind::forward || action.kind == StageAction::Kind::backward) {
      const double takes = action.kind == StageAction::Kind::forward ? times_.forward[stage] : times_.backward[stage];
      clock_[stage] += takes;
      busy += takes;
      ++next_[stage];
      return true;
    }
    if (is_receive(action.kind)) return receive(stage, action);
    return sends_ == Sends::buffered ? send(stage, action) : rendezvous(stage);
  }

  std::vector<double>& box(std::size_t stage, StageAction::Kind kind) {
    return kind == StageAction::Kind::send_output || kind == StageAction::Kind::receive_gradient
               ? (kind == StageAction::Kind::send_output ? outputs_[stage] : gradients_[stage + 1])
               : (kind == StageAction::Kind::send_gradient ? gradients_[stage] : outputs_[stage - 1]);
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
    const std::size_t other = action.kind == StageAction::Kind::send_output ? stage + 1 : stage - 1;
    const StageAction* const theirs = awaited(other);
    const StageAction::Kind wanted = action.kind == StageAction::Kind::send_output
                                         ? StageAction::Kind::receive_input
                                         : StageAction::Kind::receive_gradient;
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

/// Runs the plans of all stages against each other, without a network. REQUIRES: times for each stage.
inline SimulatedPipeline simulate_pipeline(std::span<const StagePlan> plans, const StageTimes& times, Sends sends) {
  check(times.forward.size() == plans.size() && times.backward.size() == plans.size(), "times of {} stages, of {}",
        times.forward.size(), plans.size());
  return PipelineSimulation(plans, times, sends).run();
}

}  // namespace psring::worker
