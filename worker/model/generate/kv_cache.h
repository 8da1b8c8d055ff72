#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <psring/common/device/buffer.h>
#include <psring/worker/model/layers/gpt_layers.h>

namespace psring::worker {

/// The keys and values of each sequence's tokens, in f32. Each sequence has a capacity of its own, so a short prompt in
/// a batch takes no more than it needs. Keys lie feature by feature, values token by token, so that both products of
/// attention read contiguous floats. A part of a divided GPT has the keys and values of its own heads.
class KvCache {
 public:
  /// Capacities are rounded up to this number of tokens.
  static constexpr std::size_t kGrain = 16;

  /// Books the memory as activations of `ledger`, which counts nothing else.
  KvCache(const GptShape& shape, std::span<const std::size_t> tokens, MemoryLedger& ledger,
          const TensorPart& part = {});

  std::size_t sequences() const { return sequences_.size(); }
  std::size_t capacity(std::size_t sequence) const { return sequences_[sequence].capacity; }
  /// [head_dim][capacity]; `head` counts the part's heads.
  float* keys(std::size_t sequence, std::size_t layer, std::size_t head);
  /// [capacity][head_dim]
  float* values(std::size_t sequence, std::size_t layer, std::size_t head);

  /// 2 L T d bytes, added up over the sequences: layers, capacity, the dims of the part's heads, 4.
  static std::size_t size_bytes(const GptShape& shape, std::span<const std::size_t> tokens,
                                const TensorPart& part = {});

 private:
  struct Sequence {
    std::size_t capacity = 0;
    Buffer memory;
  };
  std::size_t heads_;
  std::size_t head_dim_;
  std::vector<Sequence> sequences_;
};

}  // namespace psring::worker
