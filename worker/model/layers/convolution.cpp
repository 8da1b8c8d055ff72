#include <algorithm>
#include <cmath>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/layers/convolution.h>
#include <psring/worker/model/layers/rows.h>

namespace psring::worker {
namespace {

void check_columns(Shape in, ImageShape image, const char* name) {
  if (in.cols != image.elements())
    fail(ErrorKind::usage, "layer {} takes images of {} x {} x {}, and is given rows of {} values", name,
         image.channels, image.height, image.width, in.cols);
}

}  // namespace

Conv2d::Conv2d(std::string name, ImageShape in, Options options) : name_(std::move(name)), in_(in), options_(options) {
  check(in.elements() > 0 && options.out > 0 && options.kernel % 2 == 1, "convolution {} of {} channels, kernel {}",
        name_, options.out, options.kernel);
}

Convolution Conv2d::convolution(std::size_t batch) const {
  return {.batch = batch,
          .in = in_.channels,
          .out = options_.out,
          .height = in_.height,
          .width = in_.width,
          .kernel = options_.kernel};
}

std::vector<TensorSpec> Conv2d::tensors() const {
  const std::size_t k = options_.kernel;
  const Init init{Init::Kind::uniform, 1.0F / std::sqrt(static_cast<float>(in_.channels * k * k))};
  return {{name_ + ".weight", {options_.out, in_.channels, k, k}, init}, {name_ + ".bias", {options_.out}, init}};
}

Shape Conv2d::output(Shape in) const {
  check_columns(in, in_, name_.c_str());
  return {in.rows, options_.out * in_.height * in_.width};
}

/// Memory of the kernels, and the gradient before the activation.
std::size_t Conv2d::scratch_floats(Shape in) const {
  const std::size_t dz = options_.activation == Activation::relu ? piece(output(in).elements()) : 0;
  return dz + piece(convolution_scratch(convolution(in.rows)));
}

double Conv2d::flops(Shape in, Wanted wanted) const {
  const double products = 1 + (wanted.gradients ? 1 : 0) + (wanted.dx ? 1 : 0);
  return products * convolution(in.rows).flops();
}

void Conv2d::forward(const Forward& pass) const {
  const Convolution shape = convolution(pass.x.rows);
  const auto activation =
      options_.activation == Activation::relu ? Kernels::Activation::relu : Kernels::Activation::none;
  pass.kernels.convolve(shape, pass.x.data, pass.parameters[0].data(), pass.parameters[1].data(), activation,
                        pass.y.data, pass.scratch.first(convolution_scratch(shape)));
}

void Conv2d::backward(const Backward& pass) const {
  const Convolution shape = convolution(pass.x.rows);
  Pieces scratch(pass.scratch);
  const std::span<float> own = scratch.take(convolution_scratch(shape));
  const float* dz = pass.dy.data;
  if (options_.activation == Activation::relu) {
    const std::span<float> masked = scratch.take(pass.dy.size());
    for (std::size_t i = 0; i < masked.size(); ++i) masked[i] = pass.y.data[i] <= 0 ? 0.0F : dz[i];
    dz = masked.data();
  }
  if (pass.wants_gradients()) {
    const float beta = pass.gradients[0].beta();
    const float bias_beta = pass.gradients[1].beta();
    pass.kernels.convolve_backward_weights(shape, pass.x.data, dz, beta, pass.gradients[0].data(), bias_beta,
                                           pass.gradients[1].data(), own);
  }
  if (pass.dx.data != nullptr)
    pass.kernels.convolve_backward_input(shape, dz, pass.parameters[0].data(), pass.dx.data, own);
}

MaxPool::MaxPool(ImageShape in, std::size_t size) : in_(in), size_(size) {
  check(size > 0 && image().elements() > 0, "pooling of {} x {} pixels in windows of {}", in.height, in.width, size);
}

Shape MaxPool::output(Shape in) const {
  check_columns(in, in_, "max-pool");
  return {in.rows, image().elements()};
}

/// Calls `visit` with the index of the largest value of each window, in the order of the outputs.
template <class Visit>
void MaxPool::for_each_window(const float* image, Visit&& visit) const {
  const ImageShape out = this->image();
  for (std::size_t channel = 0; channel < in_.channels; ++channel)
    for (std::size_t y = 0; y < out.height; ++y)
      for (std::size_t x = 0; x < out.width; ++x) {
        const std::size_t first = (channel * in_.height + y * size_) * in_.width + x * size_;
        std::size_t best = first;
        for (std::size_t i = 0; i < size_ * size_; ++i) {
          const std::size_t at = first + i / size_ * in_.width + i % size_;
          if (image[at] > image[best] || std::isnan(image[at])) best = at;
        }
        visit(best);
      }
}

void MaxPool::forward(const Forward& pass) const {
  for (std::size_t r = 0; r < pass.x.rows; ++r) {
    const float* const from = pass.x.row(r);
    float* to = pass.y.row(r);
    for_each_window(from, [&](std::size_t best) { *to++ = from[best]; });
  }
}

void MaxPool::backward(const Backward& pass) const {
  if (pass.dx.data == nullptr) return;
  std::fill_n(pass.dx.data, pass.dx.size(), 0.0F);
  for (std::size_t r = 0; r < pass.x.rows; ++r) {
    const float* dy = pass.dy.row(r);
    float* const dx = pass.dx.row(r);
    for_each_window(pass.x.row(r), [&](std::size_t best) { dx[best] = *dy++; });
  }
}

}  // namespace psring::worker
