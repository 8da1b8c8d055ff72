#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
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
  bool record = false;
  std::string label;  ///< of the scene
};

/// A range that a worker handed to a collective.
struct Handed {
  ring::Collective collective;
  std::size_t elements = 0;
};

/// The result of a training.
struct Trained {
  std::vector<std::vector<float>> parameters;  ///< by worker
  std::vector<std::vector<Handed>> handed;     ///< by worker, in the last step
  std::vector<std::size_t> state_elements;     ///< by worker
  std::vector<std::string> unwaited;           ///< by worker: operations that were started, and not waited for
  std::vector<Nanoseconds> exposed;            ///< by worker: the last step's time in which it did not compute
  std::vector<Moment> ended;                   ///< by worker: when the last step was over
  RanksEnd end;
};

using TrainStep = std::function<void(exercise::Worker&)>;

/// Runs train_step at every worker. The model has a quadratic loss with other targets at each worker, so that every
/// gradient depends on the parameters.
Trained train(const TrainingOptions& options, Language language, const TrainStep& train_step);

/// The parameters that exact data-parallel training ends in.
std::vector<double> expected_parameters(const TrainingOptions& options);

/// The part of `explain_training` that looks at no values: a deadlock, an exception, an operation without wait.
std::string explain_failure(const TrainingOptions& options, Language language, const Trained& trained);

/// The mean loss over all targets, for the parameters that a worker ended in.
double loss_of(const TrainingOptions& options, const std::vector<float>& parameters);

/// Says why the training is wrong: a deadlock, an exception, an operation without wait, or parameters that differ from
/// the expected ones, with the likely cause. "": it is right.
std::string explain_training(const TrainingOptions& options, Language language, const Trained& trained);

/// Trains with the submission's train_step; refuses it, with a scene, if the training or `more` (may be null) finds a
/// mistake. Returns the run.
Trained judge_training(const Submission& submission, TrainingOptions options,
                       const std::function<std::string(const Trained&)>& more = nullptr);

}  // namespace psring::cli
