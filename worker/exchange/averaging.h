#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <psring/worker/exchange/prediction.h>
#include <psring/worker/exchange/workers.h>

namespace psring::worker {

/// The ranges of each owner in a vector that holds the trained units of [begin, end) one after the other.
ring::Parts owners_of(const Layout& layout, Range units);

/// Makes the workers' gradients of some units the mean over the workers of a group, where their owners need it.
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
  /// Adds what such a call moves at this rank.
  virtual void predict(Range units, Prediction& sum) const = 0;
  /// The mean of all workers is summed in rank order. `accumulated`: several micro-batches are averaged one by one, and
  /// added up.
  virtual bool sums_in_rank_order(bool accumulated) const = 0;
  /// Bytes booked as communication, besides the compressor's own.
  virtual std::size_t buffer_bytes() const { return 0; }
  /// The cost on a link, if exposed communication is to be predicted from it.
  virtual std::optional<ring::Cost> cost(Range /*units*/) const { return std::nullopt; }
};

/// All-reduce: every rank gets the mean of whole units. Steps and bytes are those of the plan that the group chooses.
std::unique_ptr<Averaging> make_all_reduce(const Plan& plan, Workers& workers);

/// All-reduce of compressed gradients: every rank gathers the codes of all, decodes them, and adds them up in rank
/// order in f32. Bytes per rank: n - 1 times its own codes each way.
std::unique_ptr<Averaging> make_compressed_all_reduce(const Plan& plan, const World& world, Workers& workers,
                                                      std::span<const Range> buckets);

/// Reduce-scatter among the owners of the worker's shard group: every owner gets the mean of its range of each unit.
std::unique_ptr<Averaging> make_reduce_scatter(const Plan& plan, Workers& workers);

/// The same with compressed gradients: every rank sends each owner the codes of its range; the owner decodes those of
/// all ranks, its own too, adds them up in rank order in f32, and multiplies by 1/n. Steps: n - 1 messages each way at
/// once, C/n bytes each, where C is the codes' size of whole units.
std::unique_ptr<Averaging> make_compressed_reduce_scatter(const Plan& plan, const World& world, Workers& workers);

}  // namespace psring::worker
