#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/layers/gelu.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/products.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

class MlpHalf final : public Layer {
 public:
  MlpHalf(const GptShape& shape, std::size_t index, TensorPart part)
      : shape_(shape),
        prefix_(fmt::format("h.{}.", index)),
        part_(std::move(part)),
        width_(part_.of(4 * shape.dim).size()) {}

  enum Tensor : std::size_t { kNormWeight, kNormBias, kFcWeight, kFcBias, kOutWeight, kOutBias };

  std::vector<TensorSpec> tensors() const override {
    const std::size_t dim = shape_.dim;
    const float residual = 0.02F / std::sqrt(2.0F * static_cast<float>(shape_.layers));
    std::vector<TensorSpec> list{{prefix_ + "ln_2.weight", {dim}, {Init::Kind::constant, 1}},
                                 {prefix_ + "ln_2.bias", {dim}, {}},
                                 {prefix_ + "mlp.c_fc.weight", {dim, width_}, {Init::Kind::normal, 0.02F}},
                                 {prefix_ + "mlp.c_fc.bias", {width_}, {}},
                                 {prefix_ + "mlp.c_proj.weight", {width_, dim}, {Init::Kind::normal, residual}},
                                 {prefix_ + "mlp.c_proj.bias", {dim}, {}}};
    if (part_.whole()) return list;
    const std::vector<Range> columns{part_.of(4 * dim)};
    cut(list[kFcWeight], 1, 4 * dim, columns);
    cut(list[kFcBias], 0, 4 * dim, columns);
    cut(list[kOutWeight], 0, 4 * dim, columns);
    return list;
  }

  std::vector<std::string> inputs() const override { return half_inputs(); }
  Shape output_of(std::span<const Shape> in) const override { return half_output(in); }
  std::size_t saved_floats(Shape in) const override { return layer_norm_saved(in.rows); }
  std::size_t saved_activations(Shape in) const override { return in.rows * width_; }
  /// Backward's buffers: ln_2's output (then its gradient), GELU's output and the gradient of its input, sums over
  /// rows.
  std::size_t scratch_floats(Shape in) const override {
    return piece(in.elements()) + 2 * piece(in.rows * width_) + piece(std::max(width_, layer_norm_scratch(in.cols)));
  }
  /// Forward, and the gradients with respect to weights and inputs; ln_2's gradients need the gradient of its output,
  /// like dx.
  double flops(Shape in, Wanted wanted) const override {
    return 2 * linear_products(wanted) * static_cast<double>(in.elements()) * static_cast<double>(2 * width_);
  }
  void gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const override {
    add_linear(list, wanted, in.rows, shape_.dim, width_);
    add_linear(list, wanted, in.rows, width_, shape_.dim);
  }
  LayerSums tensor_sums(Shape in, Wanted /*wanted*/) const override { return half_sums(part_, in); }

  void forward(const Forward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.x.rows;
    const Matrix hidden{pass.saved_activations.data(), rows, width_};
    Pieces scratch(pass.scratch);
    const Matrix normal{scratch.take(rows * dim).data(), rows, dim};
    const Matrix active{scratch.take(rows * width_).data(), rows, width_};

    layer_norm(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], pass.saved, normal);
    pass.kernels.gemm(product(rows, dim, width_), 1, normal.data, pass.parameters[kFcWeight].data(), 0, hidden.data);
    for (std::size_t r = 0; r < rows; ++r) {  // one row at a time, so that each row is read from memory once
      const Matrix row{hidden.row(r), 1, width_};
      add_bias(row, pass.parameters[kFcBias], row);
      pass.round(row.span());
      gelu_forward(row.span(), {active.row(r), width_});
    }
    project_half(pass, part_, active, kOutWeight, kOutBias);
  }

  void backward(const Backward& pass) const override {
    const std::size_t dim = shape_.dim;
    const std::size_t rows = pass.x.rows;
    const ConstMatrix hidden{pass.saved_activations.data(), rows, width_};
    Pieces scratch(pass.scratch);
    const Matrix normal{scratch.take(rows * dim).data(), rows, dim};
    const Matrix active{scratch.take(rows * width_).data(), rows, width_};
    const Matrix d_hidden{scratch.take(rows * width_).data(), rows, width_};
    const auto sums = scratch.take(std::max(width_, layer_norm_scratch(dim)));

    // Backward from y to the hidden activations.
    pass.kernels.gemm(input_product(rows, width_, dim), 1, pass.dy.data, pass.parameters[kOutWeight].data(), 0,
                      d_hidden.data);
    if (pass.wants_gradients()) {
      add_column_sums(pass.dy, pass.gradients[kOutBias].beta(), pass.gradients[kOutBias].span(), sums);
      activate_backward(hidden, active, d_hidden, pass.gradients[kFcBias], sums);
      const Gradient& out = pass.gradients[kOutWeight];
      pass.kernels.gemm(weight_product(rows, width_, dim), 1, active.data, pass.dy.data, out.beta(), out.data());
    } else {
      gelu_backward(hidden.span(), d_hidden.span(), d_hidden.span());
    }

    // Backward from the hidden activations to ln_2's output and x.
    if (pass.wants_gradients()) {
      layer_norm_again(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], pass.saved, normal);
      const Gradient& fc = pass.gradients[kFcWeight];
      pass.kernels.gemm(weight_product(rows, dim, width_), 1, normal.data, d_hidden.data, fc.beta(), fc.data());
    }
    const Matrix d_normal = normal;
    pass.kernels.gemm(input_product(rows, dim, width_), 1, d_hidden.data, pass.parameters[kFcWeight].data(), 0,
                      d_normal.data);
    part_.sum(d_normal.span());
    half_backward(pass, d_normal, pass.saved, kNormWeight, kNormBias, sums);
  }

  std::unique_ptr<DeviceLayer> on_device() const override {
    return part_.whole() ? make_device_mlp_half(shape_) : nullptr;
  }

 private:
  /// In one pass over the hidden activations: active = gelu(hidden), `d` changes from the gradient of GELU's output to
  /// that of its input, and the bias's gradient is added up.
  static void activate_backward(ConstMatrix hidden, Matrix active, Matrix d, const Gradient& bias,
                                std::span<float> sums) {
    constexpr std::size_t kRows = 64;
    float beta = bias.beta();
    for (std::size_t begin = 0; begin < hidden.rows; begin += kRows) {
      const std::size_t rows = std::min(kRows, hidden.rows - begin);
      for (std::size_t r = begin; r < begin + rows; ++r)
        gelu_again_and_backward({hidden.row(r), hidden.cols}, {active.row(r), hidden.cols}, {d.row(r), hidden.cols});
      add_column_sums({d.row(begin), rows, d.cols}, beta, bias.span(), sums);
      beta = 1;
    }
  }

  GptShape shape_;
  std::string prefix_;
  TensorPart part_;
  std::size_t width_;  ///< this part's columns of the 4 dim hidden ones
};

}  // namespace

std::unique_ptr<Layer> make_mlp_half(const GptShape& shape, std::size_t index, const TensorPart& part) {
  return std::make_unique<MlpHalf>(shape, index, part);
}

}  // namespace psring::worker
