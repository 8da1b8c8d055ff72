#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/worker/data/sampler.h>

namespace psring::worker {
namespace {

constexpr std::uint64_t kWords = std::uint64_t{1} << 32;

/// The words of a generator in order, a block of four at a time.
class Words {
 public:
  explicit Words(const CounterRng& rng) : rng_(rng) {}

  /// Uniform in [0, bound).
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t limit = kWords - kWords % bound;
    std::uint64_t word = next();
    while (word >= limit) word = next();
    return word % bound;
  }

 private:
  std::uint32_t next() {
    if (used_ == block_.size()) {
      block_ = rng_.block(blocks_++);
      used_ = 0;
    }
    return block_[used_++];
  }

  const CounterRng& rng_;
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
  std::uint32_t blocks_ = 0;
};

}  // namespace

std::vector<std::uint32_t> permutation(std::size_t size, const CounterRng& rng) {
  check(size <= kWords, "a permutation of {} elements", size);
  std::vector<std::uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0U);
  Words words(rng);
  for (std::size_t i = size; i-- > 1;) std::swap(order[i], order[words.below(i + 1)]);
  return order;
}

Sampler::Sampler(std::size_t size, std::size_t workers, std::uint64_t seed, bool shuffle, Padding padding)
    : size_(size), workers_(workers), seed_(seed), shuffle_(shuffle), padding_(padding) {
  check(workers > 0, "a sampler for no worker");
  if (size == 0 || size > kWords) fail(ErrorKind::data, "cannot sample a data set of {} samples", size);
}

void Sampler::begin_epoch(std::uint32_t epoch) {
  std::vector<std::uint32_t> order;
  if (shuffle_) order = permutation(size_, CounterRng({.seed = seed_, .purpose = Purpose::shuffle, .step = epoch}));
  const std::size_t each = samples_per_worker();
  lists_.resize(each * workers_);
  for (std::size_t worker = 0; worker < workers_; ++worker) {
    for (std::size_t k = 0; k < each; ++k) {
      const std::size_t position = (worker + k * workers_) % size_;
      lists_[worker * each + k] = shuffle_ ? order[position] : static_cast<std::uint32_t>(position);
    }
  }
}

std::size_t Sampler::batches(std::size_t per_worker_batch) const {
  check(per_worker_batch > 0, "a batch of no samples");
  return (samples_per_worker() + per_worker_batch - 1) / per_worker_batch;
}

std::span<const std::uint32_t> Sampler::batch(std::size_t worker, std::size_t index,
                                              std::size_t per_worker_batch) const {
  check(!lists_.empty(), "a batch before the first epoch");
  const std::size_t count = batch_size(worker, index, per_worker_batch);
  const std::size_t begin = count == 0 ? 0 : index * per_worker_batch;
  return std::span(lists_).subspan(worker * samples_per_worker() + begin, count);
}

std::size_t Sampler::batch_size(std::size_t worker, std::size_t index, std::size_t per_worker_batch) const {
  check(worker < workers_ && index < batches(per_worker_batch), "batch {} of worker {} of {}", index, worker, workers_);
  const std::size_t mine = padding_ == Padding::wrap ? samples_per_worker() : evaluation_count(size_, worker, workers_);
  return std::min(per_worker_batch, mine - std::min(index * per_worker_batch, mine));
}

double Sampler::mean_batch_size(std::size_t index, std::size_t per_worker_batch) const {
  std::size_t sum = 0;
  for (std::size_t worker = 0; worker < workers_; ++worker) sum += batch_size(worker, index, per_worker_batch);
  return static_cast<double>(sum) / static_cast<double>(workers_);
}

}  // namespace psring::worker
