#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace psring::worker {

/// The order in which a pipeline's stage computes the micro-batches of a step.
///
///   gpipe  all forward passes, then all backward passes (Huang et al., arXiv:1811.06965). A stage keeps the
///          activations of all m micro-batches.
///   1f1b   a stage runs as many forward passes ahead as there are stages after it, then one backward and one forward
///          pass in turns (Narayanan et al., PipeDream-Flush, arXiv:2006.09503). Stage s of p keeps the activations of
///          at most p - s micro-batches.
///
/// Both compute every pass of a micro-batch in the order of the micro-batches, so that gradients add up to the same
/// bits, and both leave a stage idle for the time of p - 1 micro-batches: the bubble is (p - 1) / (m + p - 1).
enum class PipelineSchedule : std::uint8_t { gpipe, one_forward_one_backward };

/// `gpipe` or `1f1b`. Throws usage for another name.
PipelineSchedule parse_pipeline_schedule(std::string_view name);

/// One action of a stage. Messages to and from one neighbour keep their order.
struct StageAction {
  enum class Kind : std::uint8_t {
    receive_input,  ///< the output of the stage before
    forward,
    send_output,       ///< to the stage after
    receive_gradient,  ///< of this stage's output, from the stage after
    backward,
    send_gradient,  ///< of this stage's input, to the stage before
  };
  Kind kind = Kind::forward;
  std::size_t micro = 0;
  friend bool operator==(const StageAction&, const StageAction&) = default;
};
using StagePlan = std::vector<StageAction>;

/// Returns the actions of a stage for a step of `micros` micro-batches. A pipeline of one stage computes one
/// micro-batch after the other. REQUIRES: stage < stages, micros > 0.
///
/// If sends do not wait for their receivers, the plans of all stages end. If each send waits, as a send without a
/// buffer does, a send and the receive after it from the same neighbour have to run together, as MPI_Sendrecv does: in
/// 1f1b, two neighbours send to each other at the same time.
StagePlan plan_stage(PipelineSchedule schedule, std::size_t stage, std::size_t stages, std::size_t micros);

/// Returns the most micro-batches whose activations a stage keeps at once: between its forward and its backward pass.
std::size_t most_in_flight(const StagePlan& plan);

/// Returns the share of a step in which a stage has nothing to compute, if all stages and passes take equally long:
/// (p - 1) / (m + p - 1).
double predicted_bubble(std::size_t stages, std::size_t micros);

/// A line for each stage, for people: "stage 0: F0 F1 B0 F2 B1 B2".
std::string describe(std::span<const StagePlan> plans);

}  // namespace psring::worker
