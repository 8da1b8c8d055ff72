#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/ranks.h>
#include <psring/cli/check/training.h>

namespace psring::cli {

inline constexpr float kLearningRate = 0.125F;

/// The target of a parameter at a worker: its loss is the mean of (parameter - target)^2 / 2.
float target(std::size_t worker, std::size_t element);
/// The initial value of a parameter.
float initial(std::size_t element);

/// The worker that a student's code sees, with the side of psring.
class TrainingWorker : public exercise::Worker {
 public:
  virtual ~TrainingWorker() = default;

  virtual void begin_step() = 0;
  /// Lets operations that nobody waited for end, so that other workers are not held up; returns their names.
  virtual std::string finish_step() = 0;

  virtual const std::vector<float>& all_parameters() const = 0;
  virtual Nanoseconds exposed() const = 0;  ///< in the last step
  virtual std::size_t state_elements() const = 0;
  virtual std::vector<Handed> handed() const = 0;  ///< in this step
};

/// REQUIRES: the arguments outlive the worker.
std::unique_ptr<TrainingWorker> make_training_worker(const TrainingOptions& options, RankSide& side);

}  // namespace psring::cli
