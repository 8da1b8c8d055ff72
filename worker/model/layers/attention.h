#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace psring {
class Kernels;
struct Gemm;
}  // namespace psring

namespace psring::worker {

/// Causal self-attention of `heads` heads over `batch` sequences of `context` tokens: out = softmax(q k^T /
/// sqrt(head_dim)) v in each head, where a token attends to itself and to earlier tokens (Vaswani et al.,
/// arXiv:1706.03762).
///
/// Computed in blocks: a block of query rows is multiplied only with the keys up to its last row, in one strip of
/// scores that stays in the cache; scores above the diagonal are not computed. For backward, only the logarithm of the
/// softmax's denominator is saved, one float per row and head; backward recomputes the probabilities strip by strip
/// (Dao et al., "FlashAttention", arXiv:2205.14135). No buffer of size context x context exists. A strip contains all
/// keys of a row, so the softmax needs no running rescale.
struct Attention {
  std::size_t batch = 0;
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;

  std::size_t dim() const { return heads * head_dim; }
  std::size_t rows() const { return batch * context; }
  /// Returns the floats of `log_sums`: [batch, heads, context].
  std::size_t saved_floats() const { return batch * heads * context; }
  std::size_t scratch_floats() const;  ///< of forward and of backward: two strips
  /// Returns the operations of the causal half of one product of queries and keys (or probabilities and values).
  double product_flops() const;
  /// Appends the products of one forward pass, and of one backward pass, in call order.
  void gemms(bool with_backward, std::vector<Gemm>& list) const;
};

/// Computes out [rows, dim] and log_sums. qkv [rows, 3 dim] holds queries, keys and values side by side, with each
/// head's columns contiguous.
void attention_forward(Kernels& kernels, const Attention& shape, std::span<const float> qkv, std::span<float> out,
                       std::span<float> log_sums, std::span<float> scratch);

/// Computes d_qkv [rows, 3 dim] from d_out [rows, dim] and the inputs and outputs of forward.
void attention_backward(Kernels& kernels, const Attention& shape, std::span<const float> qkv,
                        std::span<const float> out, std::span<const float> log_sums, std::span<const float> d_out,
                        std::span<float> d_qkv, std::span<float> scratch);

}  // namespace psring::worker
