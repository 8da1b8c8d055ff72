#include <algorithm>
#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/layers/attention.h>
#include <psring/worker/model/layers/rows.h>
#include <psring/worker/model/layers/vector_math.h>

namespace psring::worker {
namespace {

// Rows per query block. Smaller blocks compute less above the diagonal, larger blocks have faster products. On Zen 4,
// with a context of 256, a whole step takes the same time with 32 to 128 rows.
constexpr std::size_t kQueryRows = 64;

/// The query rows [begin, end) of one sequence and head, and the keys [0, end) that they attend to.
struct Block {
  std::size_t begin, end;
  std::size_t rows() const { return end - begin; }
  std::size_t keys() const { return end; }
  /// Row i of the block attends to the keys [0, visible(i)).
  std::size_t visible(std::size_t i) const { return begin + i + 1; }
};

std::size_t blocks(const Attention& shape) { return (shape.context + kQueryRows - 1) / kQueryRows; }

Block block(const Attention& shape, std::size_t index) {
  return {index * kQueryRows, std::min((index + 1) * kQueryRows, shape.context)};
}

/// The start of a head's columns in one sequence: of q, k and v in qkv, and of the output.
template <class T>
struct HeadColumns {
  HeadColumns(const Attention& shape, T* qkv, std::size_t sequence, std::size_t head)
      : stride(3 * shape.dim()),
        q(qkv + sequence * shape.context * stride + head * shape.head_dim),
        k(q + shape.dim()),
        v(k + shape.dim()) {}
  std::size_t stride;
  T* q;
  T* k;
  T* v;
};

PSRING_WIDEST void exponentials(float* x, float shift, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = exponential(x[i] - shift);
}

/// In place: turns scores into probabilities p, and dp into the scores' gradient p (dp - delta).
PSRING_WIDEST void probabilities_and_gradient(float* scores, float log_sum, float* dp, float delta, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float p = exponential(scores[i] - log_sum);
    scores[i] = p;
    dp[i] = p * (dp[i] - delta);
  }
}

// The products of one block and head. Scores and probabilities lie in strips [rows, keys] with a row stride of
// `context`. q, k, v and their gradients have a row stride of 3 dim, the output and its gradient of dim.

/// scores = q k^T; the probabilities' gradient = output gradient v^T.
Gemm rows_by_keys(const Attention& shape, Block b, std::size_t lda) {
  return {.m = b.rows(),
          .n = b.keys(),
          .k = shape.head_dim,
          .transpose_b = true,
          .lda = lda,
          .ldb = 3 * shape.dim(),
          .ldc = shape.context};
}
/// output = probabilities v; q's gradient = scores' gradient k.
Gemm rows_by_features(const Attention& shape, Block b, std::size_t ldc) {
  return {.m = b.rows(), .n = shape.head_dim, .k = b.keys(), .lda = shape.context, .ldb = 3 * shape.dim(), .ldc = ldc};
}
/// v's gradient = probabilities^T output gradient; k's gradient = scores' gradient^T q.
Gemm keys_by_features(const Attention& shape, Block b, std::size_t ldb) {
  return {.m = b.keys(),
          .n = shape.head_dim,
          .k = b.rows(),
          .transpose_a = true,
          .lda = shape.context,
          .ldb = ldb,
          .ldc = 3 * shape.dim()};
}

float score_scale(const Attention& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

void forward_block(Kernels& kernels, const Attention& shape, const HeadColumns<const float>& head, Block b, float* out,
                   float* log_sums, float* scores) {
  kernels.gemm(rows_by_keys(shape, b, head.stride), score_scale(shape), head.q + b.begin * head.stride, head.k, 0,
               scores);
  float inverse[kQueryRows];
  for (std::size_t i = 0; i < b.rows(); ++i) {
    float* row = scores + i * shape.context;
    const std::size_t n = b.visible(i);
    const float most = largest(row, n);
    exponentials(row, most, n);
    std::fill(row + n, row + b.keys(), 0.0F);
    const float total = sum(row, n);
    inverse[i] = 1.0F / total;
    log_sums[b.begin + i] = most + std::log(total);
  }
  float* to = out + b.begin * shape.dim();
  kernels.gemm(rows_by_features(shape, b, shape.dim()), 1, scores, head.v, 0, to);
  for (std::size_t i = 0; i < b.rows(); ++i)  // scale the output, which has fewer elements than the probabilities
    for (std::size_t j = 0; j < shape.head_dim; ++j) to[i * shape.dim() + j] *= inverse[i];
}

/// `beta` is 0 for the last block, which attends to all keys and is computed first, and 1 for the others.
void backward_block(Kernels& kernels, const Attention& shape, const HeadColumns<const float>& head, Block b,
                    const float* out, const float* log_sums, const float* d_out, const HeadColumns<float>& d,
                    float beta, float* scores, float* dp) {
  const std::size_t dim = shape.dim();
  const float scale = score_scale(shape);
  const float* q = head.q + b.begin * head.stride;
  const float* dy = d_out + b.begin * dim;
  kernels.gemm(rows_by_keys(shape, b, head.stride), scale, q, head.k, 0, scores);
  kernels.gemm(rows_by_keys(shape, b, dim), 1, dy, head.v, 0, dp);
  for (std::size_t i = 0; i < b.rows(); ++i) {
    const float delta = dot(dy + i * dim, out + (b.begin + i) * dim, shape.head_dim);  // sum of p dp
    float* p = scores + i * shape.context;
    float* ds = dp + i * shape.context;
    probabilities_and_gradient(p, log_sums[b.begin + i], ds, delta, b.visible(i));
    std::fill(p + b.visible(i), p + b.keys(), 0.0F);
    std::fill(ds + b.visible(i), ds + b.keys(), 0.0F);
  }
  kernels.gemm(keys_by_features(shape, b, dim), 1, scores, dy, beta, d.v);
  kernels.gemm(keys_by_features(shape, b, head.stride), scale, dp, q, beta, d.k);
  kernels.gemm(rows_by_features(shape, b, d.stride), scale, dp, head.k, 0, d.q + b.begin * d.stride);
}

std::size_t strip(const Attention& shape) { return piece(std::min(kQueryRows, shape.context) * shape.context); }

}  // namespace

std::size_t Attention::scratch_floats() const { return 2 * strip(*this); }

double Attention::product_flops() const {
  const double pairs = 0.5 * static_cast<double>(context) * static_cast<double>(context + 1);
  return 2.0 * pairs * static_cast<double>(batch * dim());
}

void Attention::gemms(bool with_backward, std::vector<Gemm>& list) const {
  for (std::size_t head = 0; head < batch * heads; ++head)
    for (std::size_t i = 0; i < blocks(*this); ++i) {
      const Block b = block(*this, i);
      const std::size_t stride = 3 * dim();
      list.insert(list.end(), {rows_by_keys(*this, b, stride), rows_by_features(*this, b, dim())});
      if (!with_backward) continue;
      list.insert(list.end(),
                  {rows_by_keys(*this, b, stride), rows_by_keys(*this, b, dim()), keys_by_features(*this, b, dim()),
                   keys_by_features(*this, b, stride), rows_by_features(*this, b, stride)});
    }
}

void attention_forward(Kernels& kernels, const Attention& shape, std::span<const float> qkv, std::span<float> out,
                       std::span<float> log_sums, std::span<float> scratch) {
  check(qkv.size() == 3 * shape.rows() * shape.dim() && scratch.size() >= shape.scratch_floats(),
        "attention: {} inputs, {} of scratch", qkv.size(), scratch.size());
  for (std::size_t s = 0; s < shape.batch; ++s)
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const HeadColumns<const float> head(shape, qkv.data(), s, h);
      float* to = out.data() + s * shape.context * shape.dim() + h * shape.head_dim;
      float* sums = log_sums.data() + (s * shape.heads + h) * shape.context;
      for (std::size_t i = 0; i < blocks(shape); ++i)
        forward_block(kernels, shape, head, block(shape, i), to, sums, scratch.data());
    }
}

void attention_backward(Kernels& kernels, const Attention& shape, std::span<const float> qkv,
                        std::span<const float> out, std::span<const float> log_sums, std::span<const float> d_out,
                        std::span<float> d_qkv, std::span<float> scratch) {
  check(d_qkv.size() == 3 * shape.rows() * shape.dim() && scratch.size() >= shape.scratch_floats(),
        "attention backward: {} gradients, {} of scratch", d_qkv.size(), scratch.size());
  for (std::size_t s = 0; s < shape.batch; ++s)
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const HeadColumns<const float> head(shape, qkv.data(), s, h);
      const HeadColumns<float> d(shape, d_qkv.data(), s, h);
      const std::size_t at = s * shape.context * shape.dim() + h * shape.head_dim;
      const float* sums = log_sums.data() + (s * shape.heads + h) * shape.context;
      for (std::size_t i = blocks(shape); i-- > 0;)
        backward_block(kernels, shape, head, block(shape, i), out.data() + at, sums, d_out.data() + at, d,
                       i + 1 == blocks(shape) ? 0.0F : 1.0F, scratch.data(), scratch.data() + strip(shape));
    }
}

}  // namespace psring::worker
