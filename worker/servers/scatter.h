#pragma once

#include <cstdint>
#include <unordered_map>

#include <psring/common/base/clock.h>
#include <psring/common/device/buffer.h>
#include <psring/ring/process_group.h>
#include <psring/worker/data/dataset.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// Worker 0 reads for all: before a step it sends each other worker the inputs and targets of that worker's batch. At
/// worker 0 this object is the data set itself; at the others it has the received samples.
class Scatter final : public Dataset {
 public:
  /// `batch`: the most samples of a worker in a step. REQUIRES: the arguments outlive it, and one thread uses it.
  Scatter(const Dataset& data, ring::ProcessGroup& group, std::size_t batch, MemoryLedger& ledger, const Clock& clock);

  /// On return this worker has its samples of batch `index` of the sampler's epoch, and the others have theirs. A
  /// collective of all workers.
  void begin_step(const Sampler& sampler, std::size_t index);
  /// Called by all workers after the last step. On return all sent samples have been taken and counted.
  void finish();
  /// The total time of all calls, in which the worker does nothing else.
  Nanoseconds waited() const { return waited_; }

  /// Adds the bytes that steps [first, steps) move at this worker, and its buffers.
  void predict(const Sampler& sampler, std::uint64_t first, std::uint64_t steps, Prediction& sum) const;

  std::size_t size() const override { return data_.size(); }
  std::size_t input_cols() const override { return data_.input_cols(); }
  std::size_t targets_per_sample() const override { return data_.targets_per_sample(); }
  std::size_t classes() const override { return data_.classes(); }
  bool tokens() const override { return data_.tokens(); }
  std::size_t target_values() const override { return data_.target_values(); }
  void read(std::size_t index, const SampleMemory& to) const override;

 private:
  bool reads() const { return group_.rank() == 0; }
  std::size_t sample_bytes() const;
  std::size_t places() const;
  std::span<float> inputs(std::size_t place, std::size_t samples);
  std::span<std::int32_t> targets(std::size_t place, std::size_t samples);
  std::span<float> values(std::size_t place, std::size_t samples);

  const Dataset& data_;
  ring::ProcessGroup& group_;
  const std::size_t batch_;
  const Clock& clock_;
  Buffer inputs_;                                          ///< of a batch; at worker 0 of one for each of the others
  Buffer targets_;                                         ///< the same, of classes
  Buffer values_;                                          ///< the same, of real targets; empty if there are none
  std::unordered_map<std::size_t, std::size_t> place_of_;  ///< of the samples that came
  Nanoseconds waited_{0};
};

}  // namespace psring::worker
