#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/layers/attention.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/products.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

class AttentionHalf final : public Layer {
 public:
  AttentionHalf(const GptShape& shape, std::size_t index, TensorPart part)
      : shape_(shape),
        prefix_(fmt::format("h.{}.", index)),
        part_(std::move(part)),
        heads_(shape.heads / part_.size()),
        width_(shape.dim / part_.size()) {
    check(shape.heads % part_.size() == 0, "{} heads for {} parts", shape.heads, part_.size());
  }

  enum Tensor : std::size_t { kNormWeight, kNormBias, kQkvWeight, kQkvBias, kOutWeight, kOutBias };

  std::vector<TensorSpec> tensors() const override {
    const std::size_t dim = shape_.dim;
    const float residual = 0.02F / std::sqrt(2.0F * static_cast<float>(shape_.layers));
    std::vector<TensorSpec> list{{prefix_ + "ln_1.weight", {dim}, {Init::Kind::constant, 1}},
                                 {prefix_ + "ln_1.bias", {dim}, {}},
                                 {prefix_ + "attn.c_attn.weight", {dim, 3 * width_}, {Init::Kind::normal, 0.02F}},
                                 {prefix_ + "attn.c_attn.bias", {3 * width_}, {}},
                                 {prefix_ + "attn.c_proj.weight", {width_, dim}, {Init::Kind::normal, residual}},
                                 {prefix_ + "attn.c_proj.bias", {dim}, {}}};
    if (part_.whole()) return list;
    const Range columns = part_.of(dim);  // of queries, keys and values: the columns of whole heads
    std::vector<Range> qkv;
    for (std::size_t i = 0; i < 3; ++i) qkv.push_back({i * dim + columns.begin, i * dim + columns.end});
    cut(list[kQkvWeight], 1, 3 * dim, qkv);
    cut(list[kQkvBias], 0, 3 * dim, qkv);
    cut(list[kOutWeight], 0, dim, {columns});
    return list;
  }

  std::vector<std::string> inputs() const override { return half_inputs(); }
  Shape output_of(std::span<const Shape> in) const override { return half_output(in); }
  std::size_t saved_floats(Shape in) const override {
    return piece(layer_norm_saved(in.rows)) + piece(attention(in).saved_floats());
  }
  std::size_t saved_activations(Shape in) const override {
    return piece(3 * in.rows * width_) + piece(in.rows * width_);
  }
  /// Backward's buffers: the gradient of the heads' output (then ln_1's output, then the gradient of ln_1's output),
  /// the gradient of qkv, and two strips.
  std::size_t scratch_floats(Shape in) const override {
    return piece(in.elements()) + piece(3 * in.rows * width_) + piece(small_floats(in));
  }
  /// Forward, and the gradients with respect to weights and inputs; ln_1's gradients need the gradient of its output,
  /// like dx.
  double flops(Shape in, Wanted wanted) const override {
    const double products =
        2 * linear_products(wanted) * static_cast<double>(in.elements()) * static_cast<double>(4 * width_);
    const bool backward = wanted.gradients || wanted.dx;
    return products + (backward ? 6 : 2) * attention(in).product_flops();  // scores and mix; by p, v, q and k
  }
  void gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const override {
    const std::size_t dim = shape_.dim;
    add_linear(list, wanted, in.rows, dim, 3 * width_);
    add_linear(list, wanted, in.rows, width_, dim);
    attention(in).gemms(wanted.gradients || wanted.dx, list);
  }
  LayerSums tensor_sums(Shape in, Wanted /*wanted*/) const override { return half_sums(part_, in); }

  void forward(const Forward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.x.rows;
    Pieces saved(pass.saved);
    const auto statistics = saved.take(layer_norm_saved(rows));
    const auto log_sums = saved.take(attention(pass.x).saved_floats());
    Pieces activations(pass.saved_activations);
    const auto qkv = activations.take(3 * rows * width_);
    const auto mixed = activations.take(rows * width_);
    Pieces scratch(pass.scratch);
    const auto normal = scratch.take(rows * dim);
    const auto strips = scratch.take(small_floats(shape_of(pass.x)));

    layer_norm(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], statistics,
               {normal.data(), rows, dim});
    pass.kernels.gemm(product(rows, dim, 3 * width_), 1, normal.data(), pass.parameters[kQkvWeight].data(), 0,
                      qkv.data());
    const Matrix heads{qkv.data(), rows, 3 * width_};
    add_bias(heads, pass.parameters[kQkvBias], heads);
    pass.round(qkv);
    attention_forward(pass.kernels, attention(pass.x), qkv, mixed, log_sums, strips);
    pass.round(mixed);
    project_half(pass, part_, {mixed.data(), rows, width_}, kOutWeight, kOutBias);
  }

  void backward(const Backward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.x.rows;
    Pieces saved(pass.saved);
    const auto statistics = saved.take(layer_norm_saved(rows));
    const auto log_sums = saved.take(attention(pass.x).saved_floats());
    Pieces activations(pass.saved_activations);
    const auto qkv = activations.take(3 * rows * width_);
    const auto mixed = activations.take(rows * width_);
    Pieces scratch(pass.scratch);
    const auto wide = scratch.take(rows * dim);
    const Matrix d_mixed{wide.data(), rows, width_};
    const Matrix d_qkv{scratch.take(3 * rows * width_).data(), rows, 3 * width_};
    const auto small = scratch.take(small_floats(shape_of(pass.x)));

    // Backward from y to the heads.
    if (pass.wants_gradients()) {
      const Gradient& out = pass.gradients[kOutWeight];
      pass.kernels.gemm(weight_product(rows, width_, dim), 1, mixed.data(), pass.dy.data, out.beta(), out.data());
      add_column_sums(pass.dy, pass.gradients[kOutBias].beta(), pass.gradients[kOutBias].span(), small);
    }
    pass.kernels.gemm(input_product(rows, width_, dim), 1, pass.dy.data, pass.parameters[kOutWeight].data(), 0,
                      d_mixed.data);
    attention_backward(pass.kernels, attention(pass.x), qkv, mixed, log_sums, d_mixed.span(), d_qkv.span(), small);

    // Backward from the heads to ln_1's output, which reuses d_mixed's memory, and to x.
    const Matrix normal{wide.data(), rows, dim};
    if (pass.wants_gradients()) {
      layer_norm_again(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], statistics, normal);
      const Gradient& in = pass.gradients[kQkvWeight];
      pass.kernels.gemm(weight_product(rows, dim, 3 * width_), 1, normal.data, d_qkv.data, in.beta(), in.data());
      add_column_sums(d_qkv, pass.gradients[kQkvBias].beta(), pass.gradients[kQkvBias].span(), small);
    }
    const Matrix d_normal = normal;
    pass.kernels.gemm(input_product(rows, dim, 3 * width_), 1, d_qkv.data, pass.parameters[kQkvWeight].data(), 0,
                      d_normal.data);
    part_.sum(d_normal.span());
    half_backward(pass, d_normal, statistics, kNormWeight, kNormBias, small);
  }

  std::unique_ptr<DeviceLayer> on_device() const override {
    return part_.whole() ? make_device_attention_half(shape_) : nullptr;
  }

 private:
  static Shape shape_of(ConstMatrix x) { return {x.rows, x.cols}; }
  Attention attention(ConstMatrix x) const { return attention(shape_of(x)); }
  Attention attention(Shape in) const {
    check(in.rows % shape_.context == 0 && in.cols == shape_.dim, "attention of {} x {}", in.rows, in.cols);
    return {.batch = in.rows / shape_.context,
            .context = shape_.context,
            .heads = heads_,
            .head_dim = shape_.dim / shape_.heads};
  }
  /// Size of the strips' buffer, which sums over rows use, too.
  std::size_t small_floats(Shape in) const { return std::max(attention(in).scratch_floats(), 3 * shape_.dim); }

  GptShape shape_;
  std::string prefix_;
  TensorPart part_;
  std::size_t heads_;  ///< of this part
  std::size_t width_;  ///< columns of this part's heads
};

}  // namespace

std::unique_ptr<Layer> make_attention_half(const GptShape& shape, std::size_t index, const TensorPart& part) {
  return std::make_unique<AttentionHalf>(shape, index, part);
}

}  // namespace psring::worker
