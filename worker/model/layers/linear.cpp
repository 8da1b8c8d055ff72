#include <algorithm>
#include <cmath>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/device/linear.h>
#include <psring/worker/model/layers/linear.h>

namespace psring::worker {
namespace {

/// dz = dy where y > 0, else 0. NaN in y passes dy through.
void relu_backward(ConstMatrix y, ConstMatrix dy, float* dz) {
  for (std::size_t i = 0; i < dy.size(); ++i) dz[i] = y.data[i] <= 0 ? 0.0F : dy.data[i];
}

/// db = beta * db + the sum of dz's rows, in order.
void add_rows(const float* dz, std::size_t rows, float beta, std::span<float> db) {
  if (beta == 0) std::fill(db.begin(), db.end(), 0.0F);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < db.size(); ++j) db[j] += dz[i * db.size() + j];
}

Gemm weight_gradient(std::size_t rows, std::size_t in, std::size_t out) {
  return {.m = out, .n = in, .k = rows, .transpose_a = true};
}

Gemm input_gradient(std::size_t rows, std::size_t in, std::size_t out) { return {.m = rows, .n = in, .k = out}; }

}  // namespace

Linear::Linear(std::string name, std::size_t in, std::size_t out, Options options)
    : name_(std::move(name)),
      whole_in_(in),
      whole_out_(out),
      options_(std::move(options)),
      in_(options_.cut == Cut::inputs ? options_.part.of(in).size() : in),
      out_(options_.cut == Cut::outputs ? options_.part.of(out).size() : out) {
  check(in_ > 0 && out_ > 0, "linear layer {}: {} inputs, {} outputs", name_, in_, out_);
}

std::vector<TensorSpec> Linear::tensors() const {
  const Init init{Init::Kind::uniform, 1.0F / std::sqrt(static_cast<float>(whole_in_))};
  std::vector<TensorSpec> list{{name_ + ".weight", {out_, in_}, init}};
  if (options_.bias) list.push_back({name_ + ".bias", {out_}, init});
  if (cuts(Cut::outputs))
    for (TensorSpec& tensor : list) cut(tensor, 0, whole_out_, {options_.part.of(whole_out_)});
  if (cuts(Cut::inputs)) cut(list[0], 1, whole_in_, {options_.part.of(whole_in_)});
  return list;
}

Shape Linear::output(Shape in) const {
  if (in.cols != in_) fail(ErrorKind::usage, "layer {} takes {} columns, and is given {}", name_, in_, in.cols);
  return {in.rows, out_};
}

std::size_t Linear::scratch_floats(Shape in) const {
  return options_.activation == Activation::relu ? in.rows * out_ : 0;
}

double Linear::flops(Shape in, Wanted wanted) const {
  const double products = 1 + (wanted.gradients ? 1 : 0) + (wanted.dx ? 1 : 0);
  return 2 * products * static_cast<double>(in.rows) * static_cast<double>(in_) * static_cast<double>(out_);
}

void Linear::gemms(Shape in, Wanted wanted, std::vector<Gemm>& list) const {
  list.push_back({.m = in.rows, .n = out_, .k = in_, .transpose_b = true});
  if (wanted.gradients) list.push_back(weight_gradient(in.rows, in_, out_));
  if (wanted.dx) list.push_back(input_gradient(in.rows, in_, out_));
}

LayerSums Linear::tensor_sums(Shape in, Wanted wanted) const {
  return {.forward = cuts(Cut::inputs) ? in.rows * out_ : 0,
          .backward = cuts(Cut::outputs) && wanted.dx ? in.rows * in_ : 0};
}

void Linear::forward(const Forward& pass) const {
  const bool sums = cuts(Cut::inputs);
  const bool relu = options_.activation == Activation::relu;
  const float* const bias = options_.bias && (!sums || options_.part.first()) ? pass.parameters[1].data() : nullptr;
  const auto activation = relu && !sums ? Kernels::Activation::relu : Kernels::Activation::none;
  pass.kernels.linear(pass.x.rows, out_, in_, pass.x.data, pass.parameters[0].data(), bias, activation, pass.y.data);
  if (!sums) return;
  options_.part.sum(pass.y.span());
  if (relu)
    for (float& value : pass.y.span()) value = value <= 0 ? 0.0F : value;  // NaN stays
}

void Linear::backward(const Backward& pass) const {
  const std::size_t rows = pass.x.rows;
  const float* dz = pass.dy.data;
  if (options_.activation == Activation::relu) {
    relu_backward(pass.y, pass.dy, pass.scratch.data());
    dz = pass.scratch.data();
  }
  if (pass.wants_gradients()) {
    const Gradient& weight = pass.gradients[0];
    pass.kernels.gemm(weight_gradient(rows, in_, out_), 1, dz, pass.x.data, weight.beta(), weight.data());
    if (options_.bias) add_rows(dz, rows, pass.gradients[1].beta(), pass.gradients[1].span());
  }
  if (pass.dx.data != nullptr)
    pass.kernels.gemm(input_gradient(rows, in_, out_), 1, dz, pass.parameters[0].data(), 0, pass.dx.data);
  if (pass.dx.data != nullptr && cuts(Cut::outputs)) options_.part.sum(pass.dx.span());
}

std::unique_ptr<DeviceLayer> Linear::on_device() const {
  return options_.part.whole() ? make_device_linear(in_, out_, options_) : nullptr;
}

}  // namespace psring::worker
