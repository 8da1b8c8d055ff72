#include <psring/common/base/text/error.h>
#include <psring/worker/model/layers/gpt_layers.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/products.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

void add_to(const Gradient& gradient, std::span<const float> values) {
  if (!gradient.wanted()) return;
  const float beta = gradient.beta();
  for (std::size_t i = 0; i < values.size(); ++i)
    gradient.data()[i] = beta == 0 ? values[i] : gradient.data()[i] + values[i];
}

}  // namespace

std::vector<std::string> half_inputs() { return {"x", "residual"}; }

Shape half_output(std::span<const Shape> inputs) {
  if (inputs[0].rows != inputs[1].rows || inputs[0].cols != inputs[1].cols)
    fail(ErrorKind::usage, "a GPT's half block adds {} x {} to a residual of {} x {}", inputs[0].rows, inputs[0].cols,
         inputs[1].rows, inputs[1].cols);
  return inputs[0];
}

void project_half(const Forward& pass, const TensorPart& part, ConstMatrix hidden, std::size_t weight,
                  std::size_t bias) {
  if (part.first()) add_bias(pass.input(1), pass.parameters[bias], pass.y);
  pass.kernels.gemm(product(hidden.rows, hidden.cols, pass.y.cols), 1, hidden.data, pass.parameters[weight].data(),
                    part.first() ? 1.0F : 0.0F, pass.y.data);
  part.sum(pass.y.span());
}

LayerSums half_sums(const TensorPart& part, Shape in) {
  return part.whole() ? LayerSums{} : LayerSums{in.elements(), in.elements()};
}

void half_backward(const Backward& pass, Matrix d_normal, std::span<const float> statistics, std::size_t norm_weight,
                   std::size_t norm_bias, std::span<float> scratch) {
  const auto norm = [&](ConstMatrix residual, Matrix dx) {
    layer_norm_backward(pass.x, pass.parameters[norm_weight], statistics, d_normal, residual, dx,
                        pass.gradients[norm_weight], pass.gradients[norm_bias], scratch);
  };
  if (pass.from_one_source()) {  // dx is the sum of both gradients, in one pass over memory
    norm(pass.dy, pass.dx);
    if (!pass.d_inputs.empty() && pass.d_inputs.front().wanted()) pass.d_inputs.front().beta();
    return;
  }
  add_to(pass.d_inputs[1], {pass.dy.data, pass.dy.size()});
  const bool wanted = pass.d_inputs[0].wanted();
  norm({}, wanted ? d_normal : Matrix{nullptr, pass.x.rows, pass.x.cols});
  add_to(pass.d_inputs[0], d_normal.span());
}

}  // namespace psring::worker
