#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <psring/ring/process_group.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/model/model.h>
#include <psring/worker/model/network.h>
#include <psring/worker/model/parallel/schedule.h>

namespace psring::worker {

/// Predicts the exchanges of a worker's layers and of its loss with the worker's tensor group. The layers and the loss
/// list their sums (Layer::tensor_sums, Loss::tensor_sums), and the group gives the cost of a collective. With
/// activation checkpointing a forward that runs again repeats its sums.
class PredictedTensorSums {
 public:
  /// `first_trained`: the layer at which backward ends. REQUIRES: all arguments outlive it.
  PredictedTensorSums(const Model& model, const Network::Options& network, std::size_t first_trained,
                      const StagePlan& actions, const ring::ProcessGroup& group)
      : model_(model), network_(network), first_trained_(first_trained), actions_(actions), group_(group) {}

  /// Returns the bytes that this rank moves in a step with micro-batches of these numbers of samples.
  ring::Moved step(std::span<const std::size_t> samples);

 private:
  /// For a number of samples.
  struct Costs {
    std::vector<ring::Moved> forward;  ///< by layer
    std::vector<ring::Moved> backward;
    ring::Moved loss;
  };
  const Costs& costs(std::size_t samples);
  void add_backward(const Costs& costs, std::size_t& held, ring::Moved& sum) const;

  const Model& model_;
  const Network::Options& network_;
  const std::size_t first_trained_;
  const StagePlan& actions_;
  const ring::ProcessGroup& group_;
  std::map<std::size_t, Costs> known_;  ///< by samples
};

/// The run of a data-parallel worker, as far as PredictedTensorSums depends on it.
struct RunOfWorker {
  Sampler sampler;
  std::size_t data_rank = 0;
  std::size_t micros = 1;   ///< micro-batches of a step
  std::uint64_t first = 0;  ///< the run makes the steps [first, steps)
  std::uint64_t steps = 0;
};

/// Adds all that the steps' passes exchange with the tensor group. Evaluations are control traffic.
void predict_tensor_sums(PredictedTensorSums& sums, const RunOfWorker& run, Prediction& prediction);

}  // namespace psring::worker
