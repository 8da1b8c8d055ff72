#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <psring/common/base/elements.h>
#include <psring/common/device/kernels.h>

namespace psring {

class Device;

namespace worker {

/// out = then(op(A) op(B) + added + bias), row-major like Gemm. Sums are f32. The result is rounded once; the product
/// is rounded separately if no fused kernel exists.
struct Product {
  enum class Then : std::uint8_t {
    nothing,
    relu,
    gelu,                ///< `kept` receives GELU's input
    times_gelu_gradient  ///< multiplies by GELU's gradient at `kept`: the backward pass of `gelu`
  };
  Gemm shape;
  ConstElements a;
  ConstElements b;
  Elements out;
  ConstElements added = {};  ///< m x n, with the type of `out`; may be `out` itself; empty: not added
  ConstElements bias = {};   ///< n elements, added to every row; empty: no bias
  Then then = Then::nothing;
  Elements kept = {};  ///< m x n; see Then
};

/// The shape of a matrix on a device, with rows of `cols` elements.
struct Rows {
  std::size_t rows = 0;
  std::size_t cols = 0;
};

/// Causal self-attention, as worker/model/layers/attention.h defines it: sequences of `context` tokens, `heads` heads.
struct AttentionShape {
  std::size_t batch = 0;
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;

  constexpr std::size_t dim() const { return heads * head_dim; }
  constexpr std::size_t rows() const { return batch * context; }
  constexpr std::size_t head_rows() const { return rows() * heads; }
};

/// The positions of each token in a batch. They give the embedding's gradient a fixed order of summation. Token ids[i]
/// (ascending) has the rows rows[begin[i]] to rows[begin[i + 1]] (exclusive), for i < *distinct. All arrays are i32 on
/// the device.
struct TokenRows {
  const std::int32_t* ids = nullptr;
  const std::int32_t* begin = nullptr;
  const std::int32_t* rows = nullptr;
  const std::int32_t* distinct = nullptr;
};

/// The sums that a loss computes over a batch, on the device.
struct LossSums {
  double loss = 0;
  std::uint64_t correct = 0;
};

/// The operations of layers on a device. Inputs and outputs lie in the device's memory. Activations, their gradients
/// and parameters have one type; the gradients of parameters may be f32. Calls are queued in order and do not wait,
/// except when a kernel needs more scratch memory than any kernel before, and in the first products of a shape.
/// Deterministic: the same shapes and inputs give the same bits. A gradient is overwritten if its `beta` is 0, and
/// accumulated if it is 1.
class TensorKernels {
 public:
  virtual ~TensorKernels() = default;

  virtual void product(const Product& product) = 0;

  /// y = layer norm of x's rows, as worker/model/layers/layer_norm.h defines it. `saved`: mean and scale, 2 floats per
  /// row, which are written; with `again` they are read.
  virtual void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved,
                          Elements y, bool again = false) = 0;
  /// dx = residual + the gradient with respect to x. May be empty: residual (means 0), dx (not wanted), and both
  /// parameter gradients (not wanted).
  struct NormGradients {
    Elements weight;
    Elements bias;
    float weight_beta = 0;
    float bias_beta = 0;
  };
  virtual void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved,
                                   ConstElements dy, ConstElements residual, Elements dx,
                                   const NormGradients& gradients) = 0;

  /// qkv [rows, 3 dim], out [rows, dim], log_sums [batch, heads, context]. Scratch memory of context x context is about
  /// 2 GiB at most, or the memory of a single head if that is more.
  virtual void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) = 0;
  virtual void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out,
                                  const float* log_sums, ConstElements d_out, Elements d_qkv) = 0;

  /// y[r] = tokens[ids[r]] + places[r % context]. REQUIRES: all ids are valid rows of the table.
  virtual void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens,
                         ConstElements places, Elements y) = 0;
  /// Computes the gradients of both tables. The sum for each row is in the batch's order. With beta 0, rows without a
  /// token become 0.
  virtual void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy,
                                  Elements d_tokens, float tokens_beta, Elements d_places, float places_beta) = 0;

  /// into = beta * into + the sum of dy's rows: the gradient of a bias.
  virtual void column_sums(Rows shape, ConstElements dy, float beta, Elements into) = 0;

  /// dx = dy * f'(.). ReLU's slope is computed from its output (0 for outputs <= 0), GELU's slope from its input. `dx`
  /// may be `dy`.
  enum class Slope : std::uint8_t { relu_of_output, gelu_of_input };
  virtual void slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) = 0;
  /// y = GELU(x).
  virtual void gelu(ConstElements x, Elements y) = 0;

  /// *sums = the loss of a batch, summed over its rows. If `scale` is not 0, y is replaced by the gradient of scale
  /// times that sum. `targets`: one class per row; if null, the loss of a row is its mean square (see
  /// worker/model/loss.h).
  virtual void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) = 0;
};

/// Returns the layers' kernels on a GPU. Their scratch memory is booked as the device's own. REQUIRES: make_cuda_device
/// made the device, which outlives the kernels. Throws usage if this build has no CUDA.
std::unique_ptr<TensorKernels> make_tensor_kernels(Device& device);

}  // namespace worker
}  // namespace psring
