#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/rng.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/model.h>

namespace psring::test {

/// A tensor of a stack of layers, with its gradient.
struct Parameter {
  std::string name;
  std::vector<float> value;
  std::vector<float> gradient;
};

/// Kernels that note which products are called.
class NotingKernels final : public Kernels {
 public:
  void gemm(const Gemm& shape, float alpha, const float* a, const float* b, float beta, float* c) override {
    products.push_back(shape);
    kernels_->gemm(shape, alpha, a, b, beta, c);
  }
  void linear(std::size_t m, std::size_t n, std::size_t k, const float* x, const float* w, const float* bias,
              Activation activation, float* y) override {
    kernels_->linear(m, n, k, x, w, bias, activation, y);
  }
  void convolve(const Convolution& shape, const float* x, const float* w, const float* bias, Activation activation,
                float* y, std::span<float> scratch) override {
    kernels_->convolve(shape, x, w, bias, activation, y, scratch);
  }
  void convolve_backward_input(const Convolution& shape, const float* dy, const float* w, float* dx,
                               std::span<float> scratch) override {
    kernels_->convolve_backward_input(shape, dy, w, dx, scratch);
  }
  void convolve_backward_weights(const Convolution& shape, const float* x, const float* dy, float beta, float* dw,
                                 float bias_beta, float* db, std::span<float> scratch) override {
    kernels_->convolve_backward_weights(shape, x, dy, beta, dw, bias_beta, db, scratch);
  }
  std::vector<Gemm> products;

 private:
  std::unique_ptr<Kernels> kernels_ = make_cpu_kernels();
};

/// Runs a stack of layers plainly: every buffer is its own allocation and starts as NaN, so that what a layer
/// does not write shows.
class LayerStack {
 public:
  LayerStack(std::vector<const worker::Layer*> layers, worker::Shape in, std::uint64_t seed);

  std::vector<Parameter>& parameters() { return parameters_; }
  Parameter& parameter(const std::string& name);
  std::vector<float>& input() { return activations_.front(); }
  /// The last layer's output for input().
  const std::vector<float>& forward();
  /// Gradients of sum(weights * output), overwritten in parameters() (`add`: added); returns that by input().
  const std::vector<float>& backward(std::span<const float> output_gradient, bool add = false);
  /// The products that forward and backward have called so far.
  const std::vector<Gemm>& products() const { return kernels_.products; }
  worker::Shape output_shape() const { return shapes_.back(); }

 private:
  std::vector<std::span<const float>> values(const worker::Layer& layer);

  std::vector<const worker::Layer*> layers_;
  std::vector<worker::Shape> shapes_;  ///< of activations_
  std::vector<std::vector<float>> activations_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> saved_;
  std::vector<std::vector<float>> saved_activations_;
  std::vector<Parameter> parameters_;
  std::map<std::string, std::size_t> index_;
  NotingKernels kernels_;
};

/// Standard normal numbers.
std::vector<float> normal(std::size_t n, std::uint64_t seed);

/// In f64.
double dot(std::span<const float> a, std::span<const float> b);
/// |a - b| / |b| of the vectors.
double relative_error(std::span<const float> a, std::span<const double> b);

}  // namespace psring::test
