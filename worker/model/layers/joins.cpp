#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/layers/joins.h>

namespace psring::worker {
namespace {

/// Writes or adds `n` values of a gradient's row, as `beta` says.
void put(const float* values, std::size_t n, float beta, float* to) {
  if (beta == 0)
    std::copy_n(values, n, to);
  else
    for (std::size_t i = 0; i < n; ++i) to[i] += values[i];
}

}  // namespace

Shape Add::output_of(std::span<const Shape> in) const {
  if (in[0].rows != in[1].rows || in[0].cols != in[1].cols)
    fail(ErrorKind::usage, "a layer adds {} x {} and {} x {}", in[0].rows, in[0].cols, in[1].rows, in[1].cols);
  return in[0];
}

double Add::flops(Shape in, Wanted /*wanted*/) const { return static_cast<double>(in.elements()); }

void Add::forward(const Forward& pass) const {
  const float* const a = pass.input(0).data;
  const float* const b = pass.input(1).data;
  const bool relu = activation_ == Activation::relu;
  for (std::size_t i = 0; i < pass.y.size(); ++i) {
    const float sum = a[i] + b[i];
    pass.y.data[i] = relu && sum <= 0 ? 0.0F : sum;
  }
}

void Add::backward(const Backward& pass) const {
  const bool relu = activation_ == Activation::relu;
  for (const Gradient& gradient : pass.d_inputs) {
    if (!gradient.wanted()) continue;
    const float beta = gradient.beta();
    if (!relu) {
      put(pass.dy.data, pass.dy.size(), beta, gradient.data());
      continue;
    }
    for (std::size_t i = 0; i < pass.dy.size(); ++i) {
      const float d = pass.y.data[i] <= 0 ? 0.0F : pass.dy.data[i];
      gradient.data()[i] = beta == 0 ? d : gradient.data()[i] + d;
    }
  }
}

Shape Concat::output_of(std::span<const Shape> in) const {
  if (in[0].rows != in[1].rows)
    fail(ErrorKind::usage, "a layer joins columns of {} and of {} rows", in[0].rows, in[1].rows);
  return {in[0].rows, in[0].cols + in[1].cols};
}

void Concat::forward(const Forward& pass) const {
  const ConstMatrix a = pass.input(0);
  const ConstMatrix b = pass.input(1);
  for (std::size_t r = 0; r < pass.y.rows; ++r)
    std::copy_n(b.row(r), b.cols, std::copy_n(a.row(r), a.cols, pass.y.row(r)));
}

void Concat::backward(const Backward& pass) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t cols = pass.input(i).cols;
    const Gradient& gradient = pass.d_inputs[i];
    if (gradient.wanted()) {
      const float beta = gradient.beta();
      for (std::size_t r = 0; r < pass.dy.rows; ++r)
        put(pass.dy.row(r) + begin, cols, beta, gradient.data() + r * cols);
    }
    begin += cols;
  }
}

}  // namespace psring::worker
