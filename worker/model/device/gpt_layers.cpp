#include <cstddef>

#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/layers/products.h>

namespace psring::worker {
namespace {

/// Elements that MatrixPieces takes for n elements: pieces are aligned to 256 bytes for every type.
constexpr std::size_t matrix_piece(std::size_t n) { return round_up(n, 128); }

/// Hands out the parts of a buffer in order: matrix_piece(n) elements for each n.
class MatrixPieces {
 public:
  explicit MatrixPieces(Elements buffer) : rest_(buffer) {}
  Elements take(std::size_t n) {
    check(rest_.size() >= matrix_piece(n), "a buffer is {} elements short", matrix_piece(n) - rest_.size());
    const Elements taken = rest_.subspan(0, n);
    rest_ = rest_.subspan(matrix_piece(n), rest_.size() - matrix_piece(n));
    return taken;
  }

 private:
  Elements rest_;
};

Rows rows_of(Shape shape) { return {shape.rows, shape.cols}; }

TensorKernels::NormGradients norm_gradients(const DeviceBackward& pass, std::size_t weight, std::size_t bias) {
  if (!pass.wants_gradients()) return {};
  return {.weight = pass.gradients[weight].values,
          .bias = pass.gradients[bias].values,
          .weight_beta = take_beta(pass.gradients[weight]),
          .bias_beta = take_beta(pass.gradients[bias])};
}

void add_column_sums(const DeviceBackward& pass, Rows shape, ConstElements dy, std::size_t bias) {
  pass.kernels.column_sums(shape, dy, take_beta(pass.gradients[bias]), pass.gradients[bias].values);
}

class Embedding final : public DeviceLayer {
 public:
  explicit Embedding(const GptShape& shape) : shape_(shape) {}

  void forward(const DeviceForward& pass) const override {
    pass.kernels.embedding(rows(pass.in), shape_.context, pass.tokens.ids, pass.parameters[0], pass.parameters[1],
                           pass.y);
  }
  void backward(const DeviceBackward& pass) const override {
    if (!pass.dx.empty()) clear(pass.dx);  // ids have no gradient
    if (!pass.wants_gradients()) return;
    const float tokens_beta = take_beta(pass.gradients[0]);
    const float places_beta = take_beta(pass.gradients[1]);
    pass.kernels.embedding_backward(rows(pass.in), shape_.context, pass.tokens.rows, pass.dy, pass.gradients[0].values,
                                    tokens_beta, pass.gradients[1].values, places_beta);
  }

 private:
  Rows rows(Shape in) const { return {in.elements(), shape_.dim}; }

  GptShape shape_;
};

class AttentionHalf final : public DeviceLayer {
 public:
  explicit AttentionHalf(const GptShape& shape) : shape_(shape) {}

  enum Tensor : std::size_t { kNormWeight, kNormBias, kQkvWeight, kQkvBias, kOutWeight, kOutBias };

  std::size_t saved_floats(Shape in) const override { return 2 * in.rows + in.rows * shape_.heads; }
  std::size_t saved_activations(Shape in) const override {
    return matrix_piece(3 * in.elements()) + matrix_piece(in.elements());
  }
  /// Backward's buffers: the gradient of the heads' output (then ln_1's output, then the gradient of ln_1's output),
  /// and the gradient of qkv.
  std::size_t scratch(Shape in) const override { return matrix_piece(in.elements()) + matrix_piece(3 * in.elements()); }

  void forward(const DeviceForward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.in.rows;
    float* const log_sums = pass.saved + 2 * rows;
    MatrixPieces kept(pass.saved_activations);
    const Elements qkv = kept.take(3 * rows * dim);
    const Elements mixed = kept.take(rows * dim);
    const Elements normal = MatrixPieces(pass.scratch).take(rows * dim);

    pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                            pass.saved, normal);
    pass.kernels.product({.shape = product(rows, dim, 3 * dim),
                          .a = normal,
                          .b = pass.parameters[kQkvWeight],
                          .out = qkv,
                          .bias = pass.parameters[kQkvBias]});
    pass.kernels.attention(attention(pass.in), qkv, mixed, log_sums);
    pass.kernels.product({.shape = product(rows, dim, dim),
                          .a = mixed,
                          .b = pass.parameters[kOutWeight],
                          .out = pass.y,
                          .added = pass.x,
                          .bias = pass.parameters[kOutBias]});
  }

  void backward(const DeviceBackward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.in.rows;
    const float* const log_sums = pass.saved + 2 * rows;
    MatrixPieces kept(pass.saved_activations);
    const Elements qkv = kept.take(3 * rows * dim);
    const Elements mixed = kept.take(rows * dim);
    MatrixPieces scratch(pass.scratch);
    const Elements d_mixed = scratch.take(rows * dim);
    const Elements d_qkv = scratch.take(3 * rows * dim);

    // Backward from y to the heads.
    if (pass.wants_gradients()) {
      add_product(pass.kernels, weight_product(rows, dim, dim), mixed, pass.dy, pass.gradients[kOutWeight]);
      add_column_sums(pass, {rows, dim}, pass.dy, kOutBias);
    }
    pass.kernels.product(
        {.shape = input_product(rows, dim, dim), .a = pass.dy, .b = pass.parameters[kOutWeight], .out = d_mixed});
    pass.kernels.attention_backward(attention(pass.in), qkv, mixed, log_sums, d_mixed, d_qkv);

    // Backward from the heads to ln_1's output, which reuses d_mixed's memory, and to x.
    const Elements normal = d_mixed;
    if (pass.wants_gradients()) {
      pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                              pass.saved, normal, true);
      add_product(pass.kernels, weight_product(rows, dim, 3 * dim), normal, d_qkv, pass.gradients[kQkvWeight]);
      add_column_sums(pass, {rows, 3 * dim}, d_qkv, kQkvBias);
    }
    const Elements d_normal = normal;
    pass.kernels.product(
        {.shape = input_product(rows, dim, 3 * dim), .a = d_qkv, .b = pass.parameters[kQkvWeight], .out = d_normal});
    pass.kernels.layer_norm_backward(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.saved, d_normal,
                                     pass.dy, pass.dx, norm_gradients(pass, kNormWeight, kNormBias));
  }

 private:
  AttentionShape attention(Shape in) const {
    return {.batch = in.rows / shape_.context,
            .context = shape_.context,
            .heads = shape_.heads,
            .head_dim = shape_.dim / shape_.heads};
  }

  GptShape shape_;
};

class MlpHalf final : public DeviceLayer {
 public:
  explicit MlpHalf(const GptShape& shape) : shape_(shape) {}

  enum Tensor : std::size_t { kNormWeight, kNormBias, kFcWeight, kFcBias, kOutWeight, kOutBias };

  std::size_t saved_floats(Shape in) const override { return 2 * in.rows; }
  /// GELU's input, and its output.
  std::size_t saved_activations(Shape in) const override { return 2 * matrix_piece(4 * in.elements()); }
  /// Backward's buffers: ln_2's output (then its gradient), and the gradient of GELU's input.
  std::size_t scratch(Shape in) const override { return matrix_piece(in.elements()) + matrix_piece(4 * in.elements()); }

  void forward(const DeviceForward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.in.rows;
    MatrixPieces kept(pass.saved_activations);
    const Elements hidden = kept.take(4 * rows * dim);
    const Elements active = kept.take(4 * rows * dim);
    const Elements normal = MatrixPieces(pass.scratch).take(rows * dim);

    pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                            pass.saved, normal);
    pass.kernels.product({.shape = product(rows, dim, 4 * dim),
                          .a = normal,
                          .b = pass.parameters[kFcWeight],
                          .out = active,
                          .bias = pass.parameters[kFcBias],
                          .then = Product::Then::gelu,
                          .kept = hidden});
    pass.kernels.product({.shape = product(rows, 4 * dim, dim),
                          .a = active,
                          .b = pass.parameters[kOutWeight],
                          .out = pass.y,
                          .added = pass.x,
                          .bias = pass.parameters[kOutBias]});
  }

  void backward(const DeviceBackward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.in.rows;
    MatrixPieces kept(pass.saved_activations);
    const Elements hidden = kept.take(4 * rows * dim);
    const Elements active = kept.take(4 * rows * dim);
    MatrixPieces scratch(pass.scratch);
    const Elements normal = scratch.take(rows * dim);
    const Elements d_hidden = scratch.take(4 * rows * dim);

    // Backward from y to the hidden activations.
    pass.kernels.product({.shape = input_product(rows, 4 * dim, dim),
                          .a = pass.dy,
                          .b = pass.parameters[kOutWeight],
                          .out = d_hidden,
                          .then = Product::Then::times_gelu_gradient,
                          .kept = hidden});
    if (pass.wants_gradients()) {
      add_product(pass.kernels, weight_product(rows, 4 * dim, dim), active, pass.dy, pass.gradients[kOutWeight]);
      add_column_sums(pass, {rows, dim}, pass.dy, kOutBias);
      add_column_sums(pass, {rows, 4 * dim}, d_hidden, kFcBias);
      // Backward from the hidden activations to ln_2's output and x.
      pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                              pass.saved, normal, true);
      add_product(pass.kernels, weight_product(rows, dim, 4 * dim), normal, d_hidden, pass.gradients[kFcWeight]);
    }
    const Elements d_normal = normal;
    pass.kernels.product(
        {.shape = input_product(rows, dim, 4 * dim), .a = d_hidden, .b = pass.parameters[kFcWeight], .out = d_normal});
    pass.kernels.layer_norm_backward(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.saved, d_normal,
                                     pass.dy, pass.dx, norm_gradients(pass, kNormWeight, kNormBias));
  }

 private:
  GptShape shape_;
};

class Head final : public DeviceLayer {
 public:
  explicit Head(const GptShape& shape) : shape_(shape) {}

  enum Tensor : std::size_t { kNormWeight, kNormBias, kTokens };

  std::size_t saved_floats(Shape in) const override { return 2 * in.rows; }
  /// ln_f's output; in backward then its gradient.
  std::size_t scratch(Shape in) const override { return matrix_piece(in.elements()); }

  void forward(const DeviceForward& pass) const override {
    const Elements normal = MatrixPieces(pass.scratch).take(pass.in.elements());
    pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                            pass.saved, normal);
    pass.kernels.product({.shape = input_product(pass.in.rows, shape_.vocab, shape_.dim),
                          .a = normal,
                          .b = pass.parameters[kTokens],
                          .out = pass.y});
  }

  void backward(const DeviceBackward& pass) const override {
    const Elements normal = MatrixPieces(pass.scratch).take(pass.in.elements());
    if (pass.wants_gradients()) {
      pass.kernels.layer_norm(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias],
                              pass.saved, normal, true);
      add_product(pass.kernels, weight_product(pass.in.rows, shape_.vocab, shape_.dim), pass.dy, normal,
                  pass.gradients[kTokens]);
    }
    const Elements d_normal = normal;
    pass.kernels.product({.shape = product(pass.in.rows, shape_.vocab, shape_.dim),
                          .a = pass.dy,
                          .b = pass.parameters[kTokens],
                          .out = d_normal});
    pass.kernels.layer_norm_backward(rows_of(pass.in), pass.x, pass.parameters[kNormWeight], pass.saved, d_normal, {},
                                     pass.dx, norm_gradients(pass, kNormWeight, kNormBias));
  }

 private:
  GptShape shape_;
};

}  // namespace

std::unique_ptr<DeviceLayer> make_device_embedding(const GptShape& shape) { return std::make_unique<Embedding>(shape); }
std::unique_ptr<DeviceLayer> make_device_attention_half(const GptShape& shape) {
  return std::make_unique<AttentionHalf>(shape);
}
std::unique_ptr<DeviceLayer> make_device_mlp_half(const GptShape& shape) { return std::make_unique<MlpHalf>(shape); }
std::unique_ptr<DeviceLayer> make_device_head(const GptShape& shape) { return std::make_unique<Head>(shape); }

}  // namespace psring::worker
