#include <psring/worker/model/device/linear.h>

namespace psring::worker {
namespace {

class DeviceLinear final : public DeviceLayer {
 public:
  DeviceLinear(std::size_t in, std::size_t out, Linear::Options options) : in_(in), out_(out), options_(options) {}

  std::size_t scratch(Shape in) const override { return relu() ? in.rows * out_ : 0; }

  void forward(const DeviceForward& pass) const override {
    pass.kernels.product({.shape = {.m = pass.in.rows, .n = out_, .k = in_, .transpose_b = true},
                          .a = pass.x,
                          .b = pass.parameters[0],
                          .out = pass.y,
                          .bias = options_.bias ? pass.parameters[1] : ConstElements(),
                          .then = relu() ? Product::Then::relu : Product::Then::nothing});
  }

  void backward(const DeviceBackward& pass) const override {
    ConstElements dz = pass.dy;
    if (relu()) {
      const Elements out = pass.scratch.subspan(0, pass.in.rows * out_);
      pass.kernels.slope(TensorKernels::Slope::relu_of_output, pass.y, pass.dy, out);
      dz = out;
    }
    if (pass.wants_gradients()) {
      add_product(pass.kernels, {.m = out_, .n = in_, .k = pass.in.rows, .transpose_a = true}, dz, pass.x,
                  pass.gradients[0]);
      if (options_.bias)
        pass.kernels.column_sums({pass.in.rows, out_}, dz, take_beta(pass.gradients[1]), pass.gradients[1].values);
    }
    if (!pass.dx.empty())
      pass.kernels.product(
          {.shape = {.m = pass.in.rows, .n = in_, .k = out_}, .a = dz, .b = pass.parameters[0], .out = pass.dx});
  }

 private:
  bool relu() const { return options_.activation == Linear::Activation::relu; }

  std::size_t in_;
  std::size_t out_;
  Linear::Options options_;
};

class DeviceGelu final : public DeviceLayer {
 public:
  void forward(const DeviceForward& pass) const override { pass.kernels.gelu(pass.x, pass.y); }
  void backward(const DeviceBackward& pass) const override {
    if (!pass.dx.empty()) pass.kernels.slope(TensorKernels::Slope::gelu_of_input, pass.x, pass.dy, pass.dx);
  }
};

}  // namespace

std::unique_ptr<DeviceLayer> make_device_linear(std::size_t in, std::size_t out, Linear::Options options) {
  return std::make_unique<DeviceLinear>(in, out, options);
}
std::unique_ptr<DeviceLayer> make_device_gelu() { return std::make_unique<DeviceGelu>(); }

}  // namespace psring::worker
