#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/error.h>
#include <psring/common/base/layout.h>

namespace psring {
class Kernels;
struct Gemm;
}  // namespace psring

namespace psring::worker {

/// Rows and columns of an activation. For text a row is a token once the embedding is through.
struct Shape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t elements() const { return rows * cols; }
};

/// A row-major matrix of activations, borrowed.
struct Matrix {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t size() const { return rows * cols; }
  float* row(std::size_t i) const { return data + i * cols; }
  std::span<float> span() const { return {data, size()}; }
};

struct ConstMatrix {
  const float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  ConstMatrix() = default;
  ConstMatrix(const float* d, std::size_t r, std::size_t c) : data(d), rows(r), cols(c) {}
  ConstMatrix(const Matrix& m) : data(m.data), rows(m.rows), cols(m.cols) {}  // a view of what may be written
  std::size_t size() const { return rows * cols; }
  const float* row(std::size_t i) const { return data + i * cols; }
  std::span<const float> span() const { return {data, size()}; }
};

/// A parameter's gradient. The first layer that writes it in a micro-batch must overwrite or add as
/// `beta` says (0: overwrite, 1: add to what is there), and `beta()` is 1 from then on: so nothing is
/// cleared in advance, shared tensors add up, and micro-batches add up.
class Gradient {
 public:
  Gradient() = default;  ///< one that is not wanted
  Gradient(std::span<float> values, bool& fresh) : data_(values.data()), size_(values.size()), fresh_(&fresh) {}
  /// Else the parameter is not trained: it has no memory for a gradient, and what makes that alone is left out.
  bool wanted() const { return fresh_ != nullptr; }
  float* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<float> span() const { return {data_, size_}; }
  bool written() const { return wanted() && !*fresh_; }
  /// 0 for the first writer, 1 after; calling it makes this caller the writer. Throws usage where it is not wanted.
  float beta() const {
    if (!wanted())
      fail(ErrorKind::usage, "--freeze: a layer writes a gradient that is not wanted; it has to ask Gradient::wanted");
    const float beta = *fresh_ ? 0.0F : 1.0F;
    *fresh_ = false;
    return beta;
  }

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;
  bool* fresh_ = nullptr;
};

/// What a layer's backward is asked for. A layer without either has none.
struct Wanted {
  bool dx = true;         ///< the gradient by x
  bool gradients = true;  ///< those of its parameters: of all of them, or of none
};

/// What a layer computes with, lent for the length of one call.
struct Forward {
  Kernels& kernels;
  std::span<const std::span<const float>> parameters;  ///< in the order of tensors()
  ConstMatrix x;
  Matrix y;
  std::span<float> saved;              ///< saved_floats(x shape) floats that live until this micro-batch's backward
  std::span<float> saved_activations;  ///< saved_activations(x shape) values that live as long
  std::span<float> scratch;            ///< scratch_floats(x shape) floats that live for this call
  bool training = true;                ///< else to evaluate, and no backward follows
  /// In the order of buffers(); empty where training is not to change them.
  std::span<const std::span<float>> buffers = {};
  DType activations = DType::f32;  ///< what y and saved_activations are kept in after the call

  /// To the values that backward will find: of what is saved and used here, too.
  void round(std::span<float> values) const { round_to(activations, values); }
};

struct Backward {
  Kernels& kernels;
  std::span<const std::span<const float>> parameters;
  std::span<const Gradient> gradients;  ///< in the order of tensors()
  ConstMatrix x;
  ConstMatrix y;
  ConstMatrix dy;  ///< of the loss by y
  Matrix dx;       ///< overwritten with the loss's gradient by x; dx.data is null where nobody needs it
  std::span<const float> saved;
  std::span<const float> saved_activations;
  std::span<float> scratch;

  /// A layer's tensors lie in one unit, which is trained or not: all of its gradients are wanted, or none.
  bool wants_gradients() const { return !gradients.empty() && gradients.front().wanted(); }
};

class DeviceLayer;

/// A layer computes; it holds no parameters, no activations and no state of its own, so one object serves
/// every micro-batch. Deterministic: the same inputs give the same bits.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The parameters it reads, by name; a name that another layer uses too is one shared tensor.
  virtual std::vector<TensorSpec> tensors() const { return {}; }
  /// State that no gradient trains, by names that no other layer uses: batch norm's running statistics. Training
  /// changes it and evaluation reads it. What training computes must not depend on it: only worker 0's count.
  virtual std::vector<TensorSpec> buffers() const { return {}; }
  /// The shape of y for an x of shape `in`. Throws usage where the layer cannot take it.
  virtual Shape output(Shape in) const { return in; }
  /// What backward needs of forward, beside x and y: kept in f32 (statistics), and in the type of all activations.
  virtual std::size_t saved_floats(Shape /*in*/) const { return 0; }
  virtual std::size_t saved_activations(Shape /*in*/) const { return 0; }
  virtual std::size_t scratch_floats(Shape /*in*/) const { return 0; }
  /// Floating-point operations that forward and backward need (not those recomputed), for reports.
  virtual double flops(Shape /*in*/, Wanted /*wanted*/) const { return 0; }
  /// Appends the matrix products of one forward and backward, as they are called: what a benchmark's ceiling
  /// is measured on.
  virtual void gemms(Shape /*in*/, Wanted /*wanted*/, std::vector<Gemm>& /*list*/) const {}

  virtual void forward(const Forward& pass) const = 0;
  virtual void backward(const Backward& pass) const = 0;

  /// What it does on a GPU (device/device_layer.h); null: it runs on the host alone.
  virtual std::unique_ptr<DeviceLayer> on_device() const;
};

}  // namespace psring::worker
