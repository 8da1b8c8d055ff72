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
/// of (seed, e) (Purpose::shuffle, step = e). Batch b of all workers together is positions b·G … of that order, G the
/// global batch; worker r of n takes the r-th of them, and every n-th from there. Where n divides G these are positions
/// r, r + n, r + 2n, … of the epoch, and the order wraps round so that every worker has ceil(size / n) samples. With
/// Padding::none, and where n does not divide G, it ends: a worker's batch may then have one sample less than worker
/// 0's, or none.
///
/// So batch b of n workers together is, as a set, what one worker reads as batch b (but for the samples that wrap
/// round at the end): `single` trains on the same samples in each step, `single --virtual-workers n` on the same n
/// lists, and a job that has fewer workers than it began with reads on where it was.
///
/// Every process computes the same lists by itself. Not safe for use from several threads.
class Sampler {
 public:
  enum class Padding : std::uint8_t { wrap, none };
  /// Throws data where `size` is 0 or above 2^32. REQUIRES: workers > 0, global_batch > 0.
  Sampler(std::size_t size, std::size_t global_batch, std::size_t workers, std::uint64_t seed, bool shuffle,
          Padding padding = Padding::wrap);

  /// Draws the order of epoch `epoch`; epochs may be begun in any order. Invalidates batches.
  void begin_epoch(std::uint32_t epoch);

  /// Steps of an epoch.
  std::size_t batches() const { return (positions_ + global_batch_ - 1) / global_batch_; }
  /// The samples of a worker's batch in the epoch last begun. REQUIRES: index < batches().
  std::span<const std::uint32_t> batch(std::size_t worker, std::size_t index) const;
  /// How many those are; in any epoch.
  std::size_t batch_size(std::size_t worker, std::size_t index) const;
  /// Samples of that batch, on average over all workers: a whole number where all have as many.
  double mean_batch_size(std::size_t index) const;

 private:
  std::size_t all_in(std::size_t index) const;

  std::size_t size_;
  std::size_t global_batch_;
  std::size_t workers_;
  std::uint64_t seed_;
  bool shuffle_;
  std::size_t positions_;             ///< of an epoch, with those that wrap round
  std::vector<std::uint32_t> lists_;  ///< by batch, the workers' one after the other; empty before the first epoch
};

/// Evaluation reads every sample once: worker r of n reads r, r + n, r + 2n, … in file order, unpadded.
constexpr std::size_t evaluation_count(std::size_t size, std::size_t worker, std::size_t workers) {
  return worker < size ? (size - worker - 1) / workers + 1 : 0;
}
constexpr std::size_t evaluation_sample(std::size_t position, std::size_t worker, std::size_t workers) {
  return worker + position * workers;
}

}  // namespace psring::worker
