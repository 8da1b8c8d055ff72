#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/range.h>
#include <psring/common/device/buffer.h>
#include <psring/server/store.h>

namespace psring::server {

/// Copies of the values that each worker was sent last, for jobs whose updates do not wait for all workers (ssp, asp,
/// backup workers). There a version's memory may be overwritten while an answer is still on its way, so answers are
/// sent from a copy. Delay compensation (--remedy dc-asgd) reads the copies, too.
///
/// A worker's copy is allocated when it is first needed: at the start for delay compensation, otherwise with the first
/// answer that is not stored into the worker's own memory.
class AnswerCopies {
 public:
  /// REQUIRES: options, store and ledger outlive this.
  AnswerCopies(const ShardOptions& options, const Store& store, MemoryLedger& ledger)
      : options_(options), store_(store), ledger_(ledger) {}

  /// Once the store is open.
  void open();
  /// Writes a trained piece's initial values into the copies that exist.
  void begin_with(Range place, std::span<const float> values);
  /// Keeps the values of a trained piece that a worker is sent now, if the worker has a copy or `sent_from_here`.
  /// Returns the copy, or nothing.
  ConstElements keep(std::size_t worker, Range place, ConstElements values, bool sent_from_here);
  /// The values that the worker was sent last. REQUIRES: delay compensation.
  ConstElements last(std::size_t worker, Range place) { return copy_of(worker).part(place); }

 private:
  Elements copy_of(std::size_t worker) { return by_worker_[worker].elements(store_.layout().parameter_type); }

  const ShardOptions& options_;
  const Store& store_;
  MemoryLedger& ledger_;
  std::vector<Buffer> by_worker_;  ///< of all trained pieces; empty under bsp without backup workers
};

}  // namespace psring::server
