#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <psring/view/tensorboard/event_records.h>

namespace psring::view {

/// The scalars of a step or of an evaluation, over all workers. Without scalars it marks a restart: this step and later
/// steps are made again.
struct StepScalars {
  std::uint64_t step = 0;
  double wall_time = 0;  ///< when the last worker recorded the step, in seconds since 1970
  std::vector<Scalar> scalars;
};

/// Turns lines of metrics.jsonl, which have the figures of one worker, into scalars over all workers. A state machine:
/// it knows no files and no clock. A step is complete when each worker has recorded this step or a later one.
///
/// train/loss is the mean over the samples of all workers; train/lr and train/epoch are those of the first worker.
/// time/* are means over the workers. Samples per second and bytes are sums. eval/* are those of all evaluated rows. If
/// each push is an update (ssp, asp), every worker has a staleness of its own.
class StepScalarsBuilder {
 public:
  /// `own_steps`: each push is an update, and workers repeat no steps of others.
  StepScalarsBuilder(std::size_t workers, bool own_steps) : workers_(workers), own_steps_(own_steps) {}

  /// Takes whole lines of metrics.jsonl that arrived at `now`. A line of another form is ignored.
  void add_metrics(std::string_view lines, double now);
  /// Takes whole lines of recoveries.jsonl, which tell with how many workers the job continues.
  void add_recoveries(std::string_view lines);

  /// Forgets the steps before the first that all workers have recorded: the lines begin in the middle of a run.
  void drop_first_steps();
  /// Returns the first step that was taken in and not given out; `otherwise` if there is none.
  std::uint64_t first_step(std::uint64_t otherwise) const;

  /// Returns the steps and evaluations that have become complete, in their order.
  std::vector<StepScalars> take_complete();
  /// Returns those that are left, with the figures of the workers that have recorded them.
  std::vector<StepScalars> take_rest() { return take_until({.step = UINT64_MAX, .training = true}); }

 private:
  /// A step, or the evaluation of the parameters with which the step begins.
  struct Key {
    std::uint64_t step = 0;
    bool training = false;  ///< the evaluation comes first
    auto operator<=>(const Key&) const = default;
  };
  /// The figures of one worker: of a step, or (those of the last group) of an evaluation.
  struct Line {
    double wall_time = 0;
    double loss = 0;
    double samples = 0;  ///< or rows

    double lr = 0;
    double epoch = 0;
    double step_s = 0;
    double compute_s = 0;
    double comm_s = 0;
    double exposed_s = 0;
    double bytes_sent = 0;
    double bytes_received = 0;
    double staleness = 0;

    std::optional<double> correct;
    bool text = false;
    std::map<std::string, double> own;  ///< the model's own metrics, by "test_NAME"
  };
  using Lines = std::map<std::uint32_t, Line>;  ///< by worker
  struct Position {
    Key first;
    Key last;
  };
  /// The time at which a worker began, in seconds since 1970, as far as its lines tell.
  struct Beginning {
    double at = 0;
    double last_s = 0;  ///< time_s of its last line
  };

  static std::vector<Scalar> training_scalars(const Lines& lines, bool own_steps);
  static std::vector<Scalar> evaluation_scalars(const Lines& lines);
  void add(std::uint32_t worker, Key key, std::uint64_t membership, const Line& line);
  void enter_membership(std::uint64_t membership, Key key, double now);
  std::vector<StepScalars> take_until(Key last);

  std::size_t workers_;
  const bool own_steps_;
  std::uint64_t membership_ = 0;
  Key restart_;                      ///< of the present membership: lines of earlier ones count before it
  Key next_;                         ///< all before it was given out
  std::optional<StepScalars> mark_;  ///< of a restart, given out before the next scalars
  std::map<Key, Lines> pending_;
  std::map<std::uint32_t, Position> positions_;    ///< by worker, in the present membership
  std::map<std::uint32_t, Beginning> beginnings_;  ///< by worker
};

}  // namespace psring::view
