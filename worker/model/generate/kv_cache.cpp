#include <psring/common/base/range.h>
#include <psring/worker/model/generate/kv_cache.h>

namespace psring::worker {

KvCache::KvCache(const GptShape& shape, std::span<const std::size_t> tokens, MemoryLedger& ledger,
                 const TensorPart& part)
    : heads_(part.of(shape.heads).size()), head_dim_(shape.dim / shape.heads) {
  for (const std::size_t count : tokens)
    sequences_.push_back({.capacity = round_up(count, kGrain),
                          .memory = Buffer(size_bytes(shape, {&count, 1}, part), Category::activations, ledger)});
}

float* KvCache::keys(std::size_t sequence, std::size_t layer, std::size_t head) {
  Sequence& of = sequences_[sequence];
  return of.memory.as<float>().data() + 2 * (layer * heads_ + head) * of.capacity * head_dim_;
}

float* KvCache::values(std::size_t sequence, std::size_t layer, std::size_t head) {
  return keys(sequence, layer, head) + sequences_[sequence].capacity * head_dim_;
}

std::size_t KvCache::size_bytes(const GptShape& shape, std::span<const std::size_t> tokens, const TensorPart& part) {
  const std::size_t width = part.of(shape.heads).size() * (shape.dim / shape.heads);
  std::size_t sum = 0;
  for (const std::size_t count : tokens) sum += 2 * shape.layers * round_up(count, kGrain) * width * sizeof(float);
  return sum;
}

}  // namespace psring::worker
