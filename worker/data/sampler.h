#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/rng.h>

namespace psring::worker {

constexpr std::size_t kMostSamples = std::size_t{1} << 32;  ///< of a data set: their numbers have 32 bits

/// Returns an unbiased permutation of 0 .. size - 1 by Fisher and Yates (Knuth, TAOCP 2, algorithm 3.4.2P): for i =
/// size - 1 down to 1, i is swapped with j = w mod (i + 1), where w is the generator's next 32-bit word below the
/// largest multiple of i + 1. Words at or above that multiple are skipped.
/// REQUIRES: size <= 2^32.
std::vector<std::uint32_t> permutation(std::size_t size, const CounterRng& rng);

/// Selects the samples that each worker trains on. In epoch e, the samples are in file order, or in the permutation of
/// (seed, e) (Purpose::shuffle, step = e). Batch b of all workers together is the positions b·G … of that order, where
/// G is the global batch; worker r of n takes the r-th of them and every n-th after it. If n divides G, these are the
/// positions r, r + n, r + 2n, … of the epoch, and the order wraps around so that every worker gets ceil(size / n)
/// samples. With Padding::none, or if n does not divide G, the order ends without wrapping: a worker's batch may then
/// have one sample less than worker 0's, or none.
///
/// Therefore batch b of n workers together is, as a set, batch b of a single worker (except the samples that wrap
/// around at the end). `single` trains on the same samples in each step, `single --virtual-workers n` on the same n
/// lists, and a job that lost workers continues at the same position.
///
/// Every process computes the same lists independently. Not safe for use from several threads.
class Sampler {
 public:
  enum class Padding : std::uint8_t { wrap, none };
  /// Throws data if `size` is 0 or above 2^32. REQUIRES: workers > 0, global_batch > 0.
  Sampler(std::size_t size, std::size_t global_batch, std::size_t workers, std::uint64_t seed, bool shuffle,
          Padding padding = Padding::wrap);

  /// Computes the order of epoch `epoch`; epochs may begin in any order. Invalidates the spans of `batch`.
  void begin_epoch(std::uint32_t epoch);

  /// The number of steps per epoch.
  std::size_t batches() const { return (positions_ + global_batch_ - 1) / global_batch_; }
  /// Returns the samples of a worker's batch in the current epoch. REQUIRES: index < batches().
  std::span<const std::uint32_t> batch(std::size_t worker, std::size_t index) const;
  /// Returns the size of a worker's batch, which is the same in every epoch.
  std::size_t batch_size(std::size_t worker, std::size_t index) const;
  /// Returns the mean size of that batch over all workers: a whole number if all sizes are equal.
  double mean_batch_size(std::size_t index) const;

 private:
  std::size_t global_batch_size(std::size_t index) const;

  std::size_t size_;
  std::size_t global_batch_;
  std::size_t workers_;
  std::uint64_t seed_;
  bool shuffle_;
  std::size_t positions_;             ///< positions per epoch, wrapped ones included
  std::vector<std::uint32_t> lists_;  ///< by batch, then by worker; empty before the first epoch
};

/// Evaluation reads every sample once: worker r of n reads r, r + n, r + 2n, … in file order, without padding.
constexpr std::size_t evaluation_count(std::size_t size, std::size_t worker, std::size_t workers) {
  return worker < size ? (size - worker - 1) / workers + 1 : 0;
}
constexpr std::size_t evaluation_sample(std::size_t position, std::size_t worker, std::size_t workers) {
  return worker + position * workers;
}

}  // namespace psring::worker
