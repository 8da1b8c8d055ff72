#pragma once

#include <memory>
#include <optional>

#include <psring/worker/exchange/prediction.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {

/// Averages the workers' gradients of some units over the workers of a group. Each owner gets the mean of its ranges.
///
/// A new kind of all-reduce (another encoding, another algorithm) is one more implementation, and one line in the
/// strategies that offer it.
class Averaging {
 public:
  virtual ~Averaging() = default;
  virtual void begin_step(Step /*step*/) {}
  /// `gradients`: of the trained units of [begin, end), one after the other. When the work is done, they are the mean
  /// in the ranges that this rank owns; elsewhere they are undefined. Ranks call it for the same units in one order; a
  /// unit is not started again before its work is done.
  virtual ring::Work start(Range units, Elements gradients, std::size_t micro) = 0;
  /// Adds the bytes that such a call moves at this rank.
  virtual void predict(Range units, Prediction& sum) const = 0;
  /// The mean of all workers is summed in rank order. `accumulated`: several micro-batches are averaged one by one, and
  /// added up.
  virtual bool sums_in_rank_order(bool accumulated) const = 0;
  /// Adds the memory that it books, besides the compressor's and the residual.
  virtual void predict_memory(Prediction& /*sum*/) const {}
  /// See Gradients::state.
  virtual std::vector<optim::StatePart> state() { return {}; }
  /// The cost on a link, if exposed communication is to be predicted from it.
  virtual std::optional<ring::Cost> cost(Range /*units*/) const { return std::nullopt; }
};

/// All-reduce: every rank gets the mean of whole units. The group chooses the plan, which determines steps and bytes.
std::unique_ptr<Averaging> make_all_reduce(const Plan& plan, Workers& workers);

/// All-reduce of compressed gradients: every rank gathers the codes of all, decodes them, and adds them up in rank
/// order in f32. Bytes per rank: n - 1 times its own codes each way.
std::unique_ptr<Averaging> make_compressed_all_reduce(const Plan& plan, const World& world, Workers& workers,
                                                      std::span<const Range> buckets);

/// All-reduce of low-rank factors (PowerSGD, see optim/codec/power_sgd.h): every rank gets the approximated mean of
/// whole units. Bytes per rank and bucket: an all-reduce of PowerSgd::first_elements and one of second_elements. The
/// first all-reduce starts when the bucket is ready. The second starts when the trainer waits for the bucket's work,
/// because it depends on the first, and all ranks must start their collectives in one order.
std::unique_ptr<Averaging> make_low_rank_all_reduce(const Plan& plan, const World& world, Workers& workers,
                                                    std::span<const Range> buckets, std::size_t rank);

/// Reduce-scatter among the owners of the worker's shard group: every owner gets the mean of its range of each unit.
/// Gradients are compressed if the world has a compressor.
std::unique_ptr<Averaging> make_reduce_scatter(const Plan& plan, const World& world, Workers& workers);

/// The reduce-scatter of compressed gradients: every rank sends each owner the codes of its range; the owner decodes
/// the codes of all ranks, also its own, adds them up in rank order in f32, and multiplies by 1/n. Steps: n - 1
/// messages each way at once, of C/n bytes each, where C is the size of the codes of whole units.
std::unique_ptr<Averaging> make_compressed_reduce_scatter(const Plan& plan, const World& world, Workers& workers);

}  // namespace psring::worker
