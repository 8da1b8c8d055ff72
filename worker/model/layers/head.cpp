#include <utility>

#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/products.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

class Head final : public Layer {
 public:
  Head(const GptShape& shape, TensorPart part)
      : shape_(shape), part_(std::move(part)), tokens_(part_.of(shape.vocab).size()) {}

  enum Tensor : std::size_t { kNormWeight, kNormBias, kTokens };

  std::vector<TensorSpec> tensors() const override {
    return {{"ln_f.weight", {shape_.dim}, {Init::Kind::constant, 1}},
            {"ln_f.bias", {shape_.dim}, {}},
            token_rows(shape_, part_)};
  }
  Shape output(Shape in) const override { return {in.rows, tokens_}; }
  std::size_t saved_floats(Shape in) const override { return layer_norm_saved(in.rows); }
  /// ln_f's output (in backward then its gradient), and sums over rows.
  std::size_t scratch_floats(Shape in) const override {
    return piece(in.elements()) + piece(layer_norm_scratch(in.cols));
  }
  /// Forward, and the gradients with respect to wte and ln_f's output; ln_f's own gradients need the latter, like dx.
  double flops(Shape in, Wanted wanted) const override {
    return 2 * linear_products(wanted) * static_cast<double>(in.elements()) * static_cast<double>(tokens_);
  }
  void gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const override {
    list.push_back(logits(in.rows));
    if (wanted.gradients) list.push_back(by_tokens(in.rows));
    if (wanted.gradients || wanted.dx) list.push_back(by_normal(in.rows));
  }
  LayerSums tensor_sums(Shape in, Wanted /*wanted*/) const override {
    return {.backward = part_.whole() ? 0 : in.elements()};
  }

  void forward(const Forward& pass) const override {
    const Matrix normal{pass.scratch.data(), pass.x.rows, shape_.dim};
    layer_norm(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], pass.saved, normal);
    pass.kernels.gemm(logits(pass.x.rows), 1, normal.data, pass.parameters[kTokens].data(), 0, pass.y.data);
  }

  void backward(const Backward& pass) const override {
    const std::size_t rows = pass.x.rows;
    Pieces scratch(pass.scratch);
    const Matrix normal{scratch.take(rows * shape_.dim).data(), rows, shape_.dim};
    if (pass.wants_gradients()) {
      layer_norm_again(pass.x, pass.parameters[kNormWeight], pass.parameters[kNormBias], pass.saved, normal);
      const Gradient& tokens = pass.gradients[kTokens];
      pass.kernels.gemm(by_tokens(rows), 1, pass.dy.data, normal.data, tokens.beta(), tokens.data());
    }
    const Matrix d_normal = normal;
    pass.kernels.gemm(by_normal(rows), 1, pass.dy.data, pass.parameters[kTokens].data(), 0, d_normal.data);
    part_.sum(d_normal.span());
    layer_norm_backward(pass.x, pass.parameters[kNormWeight], pass.saved, d_normal, {}, pass.dx,
                        pass.gradients[kNormWeight], pass.gradients[kNormBias],
                        scratch.take(layer_norm_scratch(shape_.dim)));
  }

  std::unique_ptr<DeviceLayer> on_device() const override { return part_.whole() ? make_device_head(shape_) : nullptr; }

 private:
  Gemm logits(std::size_t rows) const { return input_product(rows, tokens_, shape_.dim); }
  Gemm by_tokens(std::size_t rows) const { return weight_product(rows, tokens_, shape_.dim); }
  Gemm by_normal(std::size_t rows) const { return product(rows, tokens_, shape_.dim); }

  GptShape shape_;
  TensorPart part_;
  std::size_t tokens_;  ///< of this part
};

}  // namespace

std::unique_ptr<Layer> make_head(const GptShape& shape, const TensorPart& part) {
  return std::make_unique<Head>(shape, part);
}

}  // namespace psring::worker
