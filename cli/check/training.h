#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/ranks.h>

namespace psring::cli {

/// A few steps of workers that call a student's train_step over a simulated network.
struct TrainingOptions {
  std::size_t workers = 4;
  std::vector<std::size_t> layers;  ///< elements of each layer; their sum is a multiple of `workers`
  std::size_t steps = 1;
  float momentum = 0;  ///< of the expected update
  std::uint64_t seed = 0;
  net::LinkSpec link{1e9, std::chrono::microseconds(100)};
  double elements_per_second = 1e9;  ///< forward takes this rate for each element, backward half of it
  Nanoseconds start_cost{0};  ///< time that the start of a collective takes, in which the worker does not compute
  std::optional<Language> record = {};  ///< see RanksOptions
  std::string label = {};               ///< of the scene

  std::size_t elements() const;  ///< of all layers
};

inline constexpr float kLearningRate = 0.125F;

/// The target of a parameter at a worker: its loss is the mean of (parameter - target)^2 / 2.
float target(std::size_t worker, std::size_t element);
/// The initial value of a parameter.
float initial(std::size_t element);

/// A range that a worker handed to a collective.
struct Handed {
  ring::Collective collective;
  std::size_t elements = 0;
};

/// A worker at the end of a training.
struct TrainedWorker {
  std::vector<float> parameters;
  std::vector<Handed> handed;  ///< in the last step
  std::size_t state_elements = 0;
  std::string unwaited;    ///< operations that were started, and not waited for
  Nanoseconds exposed{0};  ///< the last step's time in which it did not compute
  Moment ended;            ///< when the last step was over

  std::size_t handed_elements() const;
};

struct Trained {
  std::vector<TrainedWorker> workers;
  RanksEnd end;
};

using TrainStep = std::function<void(exercise::Worker&)>;

/// Runs train_step at every worker. The model has a quadratic loss with other targets at each worker, so that every
/// gradient depends on the parameters.
Trained train(const TrainingOptions& options, const TrainStep& train_step);

/// A step of DDP with buckets of at least `most` elements, filled from the last layer on, each started when it is full.
void ddp_step(exercise::Worker& worker, std::size_t most);

/// The submission's train_step.
TrainStep train_step_of(const Submission& submission);

/// Refuses a deadlock, an exception, and an operation without wait.
void require_ended(const TrainingOptions& options, const Trained& trained);

/// Trains with the submission's train_step. Refuses a training that has not ended well, parameters that differ from
/// those of exact data-parallel training, with the likely cause, and what `more` refuses; the scene shows it.
Trained judge_training(
    const Submission& submission, TrainingOptions options,
    const std::function<void(const Trained&)>& more = [](const Trained&) {});

}  // namespace psring::cli
