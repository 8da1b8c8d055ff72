#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/rng.h>

namespace psring::worker {

/// A permutation of 0 .. size - 1 by Fisher and Yates (Knuth, TAOCP 2, algorithm 3.4.2P), unbiased: for
/// i = size - 1 down to 1, i changes places with j = w mod (i + 1), where w is the generator's next
/// 32-bit word below the largest multiple of i + 1; words at or above it are passed over.
/// REQUIRES: size <= 2^32.
std::vector<std::uint32_t> permutation(std::size_t size, const CounterRng& rng);

/// Which samples a worker trains on. In epoch e, the samples stand in file order, or in the permutation
/// of (seed, e) (Purpose::shuffle, step = e). Worker r of n takes positions r, r + n, r + 2n, … of that
/// order, which wraps round so that every worker has ceil(size / n) samples; or, with Padding::none, ends: then
/// workers from size mod n on have one sample less.
///
/// Batch b of a worker is positions b·B … of its own list; the last may be short. It is as short for all workers
/// with Padding::wrap; with none it may be shorter for some, or empty, and never longer than worker 0's. So batch
/// b of n workers together is, as a set, what one worker reads as batch b at n·B (but for the samples that wrap
/// round at the end): `single` at the global batch trains on the same samples in each step, and `single
/// --virtual-workers n` on the same n lists.
///
/// Every process computes the same lists by itself. Not safe for use from several threads.
class Sampler {
 public:
  enum class Padding : std::uint8_t { wrap, none };
  /// Throws data where `size` is 0 or above 2^32. REQUIRES: workers > 0.
  Sampler(std::size_t size, std::size_t workers, std::uint64_t seed, bool shuffle, Padding padding = Padding::wrap);

  /// Draws the order of epoch `epoch`; epochs may be begun in any order. Invalidates batches.
  void begin_epoch(std::uint32_t epoch);

  /// Of worker 0, who has the most.
  std::size_t samples_per_worker() const { return (size_ + workers_ - 1) / workers_; }
  /// Steps of an epoch.
  std::size_t batches(std::size_t per_worker_batch) const;
  /// The samples of a worker's batch in the epoch last begun. REQUIRES: index < batches(per_worker_batch).
  std::span<const std::uint32_t> batch(std::size_t worker, std::size_t index, std::size_t per_worker_batch) const;
  /// How many those are; in any epoch.
  std::size_t batch_size(std::size_t worker, std::size_t index, std::size_t per_worker_batch) const;
  /// Samples of that batch, on average over all workers: a whole number where all have as many.
  double mean_batch_size(std::size_t index, std::size_t per_worker_batch) const;

 private:
  std::size_t size_;
  std::size_t workers_;
  std::uint64_t seed_;
  bool shuffle_;
  Padding padding_;
  std::vector<std::uint32_t> lists_;  ///< the workers' lists, one after the other; empty before the first epoch
};

/// Evaluation reads every sample once: worker r of n reads r, r + n, r + 2n, … in file order, unpadded.
constexpr std::size_t evaluation_count(std::size_t size, std::size_t worker, std::size_t workers) {
  return worker < size ? (size - worker - 1) / workers + 1 : 0;
}
constexpr std::size_t evaluation_sample(std::size_t position, std::size_t worker, std::size_t workers) {
  return worker + position * workers;
}

}  // namespace psring::worker
