#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace psring {
class Kernels;
struct Gemm;
}  // namespace psring

namespace psring::worker {

/// Causal self-attention of `heads` heads over `batch` sequences of `context` tokens; out = softmax(q k^T /
/// sqrt(head_dim)) v in each head, where a token sees itself and those before it (Vaswani et al., arXiv:1706.03762).
///
/// Computed in blocks: a block of query rows meets only the keys up to its last row (what lies above the diagonal
/// is not computed), in one strip of scores that stays in cache. Only the logarithm of the softmax's denominator is
/// kept for backward, one float a row and head; backward computes the probabilities again, strip by strip (Dao et
/// al., "FlashAttention", arXiv:2205.14135). Nothing of size context x context is ever stored. A strip holds a
/// row's keys whole, so the softmax needs no running rescale.
struct Attention {
  std::size_t batch = 0;
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;

  std::size_t dim() const { return heads * head_dim; }
  std::size_t rows() const { return batch * context; }
  /// Floats of `log_sums`: [batch, heads, context].
  std::size_t saved_floats() const { return batch * heads * context; }
  std::size_t scratch_floats() const;  ///< of forward and of backward: two strips
  /// Of one product of queries and keys (or probabilities and values), its causal half.
  double product_flops() const;
  /// Appends the products of one forward, and of one backward, as they are called.
  void gemms(bool with_backward, std::vector<Gemm>& list) const;
};

/// qkv [rows, 3 dim] holds queries, keys and values side by side, each head's columns together;
/// writes out [rows, dim] and log_sums.
void attention_forward(Kernels& kernels, const Attention& shape, std::span<const float> qkv, std::span<float> out,
                       std::span<float> log_sums, std::span<float> scratch);

/// Writes d_qkv [rows, 3 dim] from d_out [rows, dim] and what forward was given and wrote.
void attention_backward(Kernels& kernels, const Attention& shape, std::span<const float> qkv,
                        std::span<const float> out, std::span<const float> log_sums, std::span<const float> d_out,
                        std::span<float> d_qkv, std::span<float> scratch);

}  // namespace psring::worker
