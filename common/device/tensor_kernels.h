#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <psring/common/base/elements.h>
#include <psring/common/device/kernels.h>

namespace psring {

/// out = then(op(A) op(B) + added + bias), row-major as Gemm says. Sums are f32's; what is written is rounded once, or
/// where no kernel does all of it, once more for the product.
struct Product {
  enum class Then : std::uint8_t {
    nothing,
    relu,
    gelu,                ///< `kept` gets what goes into it
    times_gelu_gradient  ///< of what `kept` holds: backward of the one above
  };
  Gemm shape;
  ConstElements a;
  ConstElements b;
  Elements out;
  ConstElements added = {};  ///< m x n, of the type of `out`, which it may be; empty: nothing
  ConstElements bias = {};   ///< n elements for every row; empty: none
  Then then = Then::nothing;
  Elements kept = {};  ///< m x n; see Then
};

/// Rows of a matrix on a device, each of `cols` elements.
struct Rows {
  std::size_t rows = 0;
  std::size_t cols = 0;
};

/// Causal self-attention, as worker/model/attention.h defines it: sequences of `context` tokens, `heads` heads.
struct AttentionShape {
  std::size_t batch = 0;
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;

  constexpr std::size_t dim() const { return heads * head_dim; }
  constexpr std::size_t rows() const { return batch * context; }
  constexpr std::size_t head_rows() const { return rows() * heads; }
};

/// Which rows of a batch hold which token, for a gradient whose sums have one order: entry i of `ids`, ascending, is
/// that of rows[begin[i]] to rows[begin[i + 1]], for i < *distinct. On the device, as i32.
struct TokenRows {
  const std::int32_t* ids = nullptr;
  const std::int32_t* begin = nullptr;
  const std::int32_t* rows = nullptr;
  const std::int32_t* distinct = nullptr;
};

/// What a loss says of a batch, on the device.
struct LossSums {
  double loss = 0;
  std::uint64_t correct = 0;
};

/// What layers compute with on a device, from elements and to elements in its memory. Activations, their gradients and
/// parameters have one type; a parameter's gradient may be f32 all the same. Calls are queued in their order and do not
/// wait, but where one needs more memory for its own than any before it. Deterministic: the same shapes and inputs give
/// the same bits. A gradient is overwritten where `beta` is 0, and added to what is there where it is 1.
class TensorKernels {
 public:
  virtual ~TensorKernels() = default;

  virtual void product(const Product& product) = 0;

  /// y = layer norm of x's rows, as worker/model/layer_norm.h defines it; `saved`: 2 floats a row, mean and scale.
  /// With `again` they are there, and read.
  virtual void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved,
                          Elements y, bool again = false) = 0;
  /// dx = residual + the gradient by x. Empty: residual (0), dx (not wanted), both gradients (not wanted).
  struct NormGradients {
    Elements weight;
    Elements bias;
    float weight_beta = 0;
    float bias_beta = 0;
  };
  virtual void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved,
                                   ConstElements dy, ConstElements residual, Elements dx,
                                   const NormGradients& gradients) = 0;

  /// qkv [rows, 3 dim], out [rows, dim], log_sums [batch, heads, context]; no buffer of context x context is made.
  virtual void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) = 0;
  virtual void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out,
                                  const float* log_sums, ConstElements d_out, Elements d_qkv) = 0;

  /// y[r] = tokens[ids[r]] + places[r % context]; REQUIRES: ids of the table.
  virtual void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens,
                         ConstElements places, Elements y) = 0;
  /// The tables' gradients, each row's sum in the batch's order. With beta 0 rows without a token become 0.
  virtual void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy,
                                  Elements d_tokens, float tokens_beta, Elements d_places, float places_beta) = 0;

  /// into = beta * into + the sum of dy's rows: a bias's gradient.
  virtual void column_sums(Rows shape, ConstElements dy, float beta, Elements into) = 0;

  /// dx = dy * f'(.): of ReLU by its output (zero, and below, gives 0), of GELU by its input. `dx` may be `dy`.
  enum class Slope : std::uint8_t { relu_of_output, gelu_of_input };
  virtual void slope(Slope slope, ConstElements of, ConstElements dy, Elements dx) = 0;
  /// y = GELU(x).
  virtual void gelu(ConstElements x, Elements y) = 0;

  /// *sums = a batch's loss, summed over its rows. Where `scale` is not 0, y becomes the gradient of scale times
  /// that sum. `targets`: a class a row; null: the mean square of each row is its loss (see worker/model/loss.h).
  virtual void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) = 0;
};

}  // namespace psring
