#include <psring/common/base/range.h>
#include <psring/worker/model/generate/kv_cache.h>

namespace psring::worker {

KvCache::KvCache(const GptShape& shape, std::span<const std::size_t> tokens, MemoryLedger& ledger) : shape_(shape) {
  for (const std::size_t count : tokens)
    sequences_.push_back({.capacity = round_up(count, kGrain),
                          .memory = Buffer(size_bytes(shape, {&count, 1}), Category::activations, ledger)});
}

float* KvCache::keys(std::size_t sequence, std::size_t layer, std::size_t head) {
  Sequence& of = sequences_[sequence];
  const std::size_t one = of.capacity * (shape_.dim / shape_.heads);
  return of.memory.as<float>().data() + 2 * (layer * shape_.heads + head) * one;
}

float* KvCache::values(std::size_t sequence, std::size_t layer, std::size_t head) {
  return keys(sequence, layer, head) + sequences_[sequence].capacity * (shape_.dim / shape_.heads);
}

std::size_t KvCache::size_bytes(const GptShape& shape, std::span<const std::size_t> tokens) {
  std::size_t sum = 0;
  for (const std::size_t count : tokens) sum += 2 * shape.layers * round_up(count, kGrain) * shape.dim * sizeof(float);
  return sum;
}

}  // namespace psring::worker
