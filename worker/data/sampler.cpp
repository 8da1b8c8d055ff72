#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/sampler.h>

namespace psring::worker {
namespace {

constexpr std::uint64_t kWords = std::uint64_t{1} << 32;

/// A random generator's 32-bit words in order, four words per block.
class Words {
 public:
  explicit Words(const CounterRng& rng) : rng_(rng) {}

  /// Returns a uniform number in [0, bound).
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

Sampler::Sampler(std::size_t size, std::size_t global_batch, std::size_t workers, std::uint64_t seed, bool shuffle,
                 Padding padding)
    : size_(size), global_batch_(global_batch), workers_(workers), seed_(seed), shuffle_(shuffle), positions_(size) {
  check(workers > 0, "a sampler for no worker");
  check(global_batch > 0, "a batch of no samples");
  if (size == 0 || size > kWords) fail(ErrorKind::data, "cannot sample a data set of {} samples", size);
  if (padding == Padding::wrap && global_batch % workers == 0) positions_ = (size + workers - 1) / workers * workers;
}

void Sampler::begin_epoch(std::uint32_t epoch) {
  std::vector<std::uint32_t> order;
  if (shuffle_) order = permutation(size_, CounterRng({.seed = seed_, .purpose = Purpose::shuffle, .step = epoch}));
  lists_.clear();
  lists_.reserve(positions_);
  for (std::size_t index = 0; index < batches(); ++index) {
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      for (std::size_t k = 0; k < batch_size(worker, index); ++k) {
        const std::size_t position = (index * global_batch_ + worker + k * workers_) % size_;
        lists_.push_back(shuffle_ ? order[position] : static_cast<std::uint32_t>(position));
      }
    }
  }
}

/// Returns the number of samples in a batch of all workers together.
std::size_t Sampler::global_batch_size(std::size_t index) const {
  check(index < batches(), "batch {} of {}", index, batches());
  return std::min(global_batch_, positions_ - index * global_batch_);
}

std::span<const std::uint32_t> Sampler::batch(std::size_t worker, std::size_t index) const {
  check(!lists_.empty(), "a batch before the first epoch");
  const std::size_t count = batch_size(worker, index);
  const std::size_t all = global_batch_size(index);
  const std::size_t earlier = worker * (all / workers_) + std::min(worker, all % workers_);
  return std::span(lists_).subspan(index * global_batch_ + earlier, count);
}

std::size_t Sampler::batch_size(std::size_t worker, std::size_t index) const {
  check(worker < workers_, "a batch of worker {} of {}", worker, workers_);
  return evaluation_count(global_batch_size(index), worker, workers_);
}

double Sampler::mean_batch_size(std::size_t index) const {
  return static_cast<double>(global_batch_size(index)) / static_cast<double>(workers_);
}

}  // namespace psring::worker
