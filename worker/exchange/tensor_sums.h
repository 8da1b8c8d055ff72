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

/// Predicts what a worker's layers and its loss exchange with the worker's tensor group, from what they say themselves
/// (Layer::tensor_sums, Loss::tensor_sums) and from what the group says that a collective costs. With activation
/// checkpointing the sums of a forward that runs again are made again.
class TensorSums {
 public:
  /// `first_trained`: the layer at which backward ends. REQUIRES: all arguments outlive it.
  TensorSums(const Model& model, const Network::Options& network, std::size_t first_trained, const StagePlan& actions,
             const ring::ProcessGroup& group)
      : model_(model), network_(network), first_trained_(first_trained), actions_(actions), group_(group) {}

  /// Returns what this rank moves in a step with micro-batches of so many samples.
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

/// The run of a data-parallel worker, as far as TensorSums depends on it.
struct RunOfWorker {
  Sampler sampler;
  std::size_t data_rank = 0;
  std::size_t micros = 1;   ///< micro-batches of a step
  std::uint64_t first = 0;  ///< the run makes the steps [first, steps)
  std::uint64_t steps = 0;
};

/// Adds all that the steps' passes exchange with the tensor group. Evaluations are control traffic.
void predict_tensor_sums(TensorSums& sums, const RunOfWorker& run, Prediction& prediction);

}  // namespace psring::worker
