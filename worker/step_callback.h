#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <psring/common/base/events/events.h>

namespace psring::worker {

/// A step of a worker that has ended, as a program's callback sees it (App::on_step).
class StepContext {
 public:
  StepContext(std::size_t worker, std::uint64_t step, std::uint64_t epoch, double loss, std::size_t samples)
      : worker_(worker), step_(step), epoch_(epoch), loss_(loss), samples_(samples) {}

  std::size_t worker() const { return worker_; }
  std::uint64_t step() const { return step_; }  ///< from 0
  std::uint64_t epoch() const { return epoch_; }
  double loss() const { return loss_; }  ///< mean over this worker's samples; 0 if it had none
  std::size_t samples() const { return samples_; }

  /// Adds a figure to this step's line in metrics.jsonl, under "own".
  void record(std::string name, double value) { figures_.push_back({std::move(name), value}); }
  std::vector<OwnFigure> take_figures() { return std::move(figures_); }

 private:
  std::size_t worker_;
  std::uint64_t step_;
  std::uint64_t epoch_;
  double loss_;
  std::size_t samples_;
  std::vector<OwnFigure> figures_;
};

/// Called in each worker after each step, by the thread that trains: the next step waits for it.
using StepCallback = std::function<void(StepContext& step)>;

}  // namespace psring::worker
