#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>

namespace psring {
class Kernels;
struct Gemm;
}  // namespace psring

namespace psring::worker {

/// Rows and columns of an activation. In text models, a row is a token after the embedding.
struct Shape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t elements() const { return rows * cols; }
};

/// A borrowed, row-major matrix of activations.
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
  ConstMatrix(const Matrix& m) : data(m.data), rows(m.rows), cols(m.cols) {}  // a read-only view
  std::size_t size() const { return rows * cols; }
  const float* row(std::size_t i) const { return data + i * cols; }
  std::span<const float> span() const { return {data, size()}; }
};

/// A parameter's gradient. The first layer that writes it in a micro-batch overwrites it, later writers add to it, as
/// `beta` says. Therefore gradients need not be cleared in advance, and the gradients of shared tensors and of
/// micro-batches add up.
class Gradient {
 public:
  Gradient() = default;  ///< not wanted
  Gradient(std::span<float> values, bool& fresh) : data_(values.data()), size_(values.size()), fresh_(&fresh) {}
  /// Returns false if the parameter is not trained: it then has no memory for a gradient, and layers skip work that
  /// serves only this gradient.
  bool wanted() const { return fresh_ != nullptr; }
  float* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<float> span() const { return {data_, size_}; }
  bool written() const { return wanted() && !*fresh_; }
  /// Returns 0 for the first writer and 1 for later ones; the caller becomes a writer. Throws usage if the gradient is
  /// not wanted.
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

/// The gradients that a layer's backward must compute. Backward is not called if none is wanted.
struct Wanted {
  bool dx = true;         ///< gradient with respect to x
  bool gradients = true;  ///< gradients of the layer's parameters: all or none
};

/// Elements, in f32, of the vectors that a layer sums over its tensor-parallel group: one sum in a forward, and one in
/// a backward. 0: none.
struct LayerSums {
  std::size_t forward = 0;
  std::size_t backward = 0;
};

/// The rows of a batch in one table, as EmbeddingBag reads them. A bag is the keys of one feature of one sample; bags
/// are in the order of the samples, and of the features within a sample.
struct TableView {
  ConstMatrix rows;                        ///< [different keys of the worker's batch, width]
  Matrix gradients;                        ///< of the rows; a layer adds to them. No data in an evaluation
  std::span<const std::uint32_t> offsets;  ///< bag b of the micro-batch has the lookups offsets[b] .. offsets[b + 1]
  std::span<const std::uint32_t> lookups;  ///< the row of each key
};

/// Random numbers of a batch. A sample's numbers depend only on the seed, the step, the layer, and the sample's
/// position in the step's global batch. So a layer draws the same numbers under every strategy, with any number of
/// workers and micro-batches, after a restart, and when activation checkpointing runs forward again.
struct Randomness {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::size_t first = 0;   ///< position of the batch's first sample in the global batch
  std::size_t stride = 1;  ///< from one sample's position to the next sample's: the number of workers
  std::uint32_t layer = 0;

  /// Returns the generator of one sample of the batch.
  CounterRng of_sample(std::size_t sample) const {
    const std::size_t position = first + sample * stride;
    return CounterRng({.seed = seed,
                       .purpose = Purpose::dropout,
                       .tensor = layer,
                       .step = static_cast<std::uint32_t>(step),
                       .micro = static_cast<std::uint16_t>(position >> 16),
                       .rank = static_cast<std::uint16_t>(position)});
  }
};

/// A layer's arguments, lent for one call.
struct Forward {
  Kernels& kernels;
  std::span<const std::span<const float>> parameters;  ///< in the order of tensors()
  ConstMatrix x;
  Matrix y;
  std::span<float> saved;              ///< saved_floats(x shape) floats that live until this micro-batch's backward
  std::span<float> saved_activations;  ///< saved_activations(x shape) values that live until this micro-batch's
                                       ///< backward
  std::span<float> scratch;            ///< scratch_floats(x shape) floats that live during this call
  bool training = true;                ///< false: evaluation, without a backward
  /// In the order of buffers(); empty if training must not change them.
  std::span<const std::span<float>> buffers = {};
  DType activations = DType::f32;  ///< type in which y and saved_activations are stored after the call
  /// All inputs, in the order of Layer::inputs(); empty: every input is x.
  std::span<const ConstMatrix> inputs = {};
  std::size_t samples = 0;           ///< samples of the batch; x has the same number of rows for each
  Randomness randomness = {};        ///< for training; evaluation draws nothing
  const TableView* table = nullptr;  ///< of a layer with a table

  ConstMatrix input(std::size_t i) const { return inputs.empty() ? x : inputs[i]; }

  /// Rounds saved values that are used in this call, too, to the values that backward will read.
  void round(std::span<float> values) const { round_to(activations, values); }
};

struct Backward {
  Kernels& kernels;
  std::span<const std::span<const float>> parameters;
  std::span<const Gradient> gradients;  ///< in the order of tensors()
  ConstMatrix x;
  ConstMatrix y;
  ConstMatrix dy;  ///< gradient of the loss with respect to y
  Matrix dx;       ///< overwritten with the gradient of the loss with respect to x; dx.data is null if it is not wanted
  std::span<const float> saved;
  std::span<const float> saved_activations;
  std::span<float> scratch;
  /// All inputs, in the order of Layer::inputs(); empty: every input is x.
  std::span<const ConstMatrix> inputs = {};
  /// A layer with several inputs writes these gradients, as beta() says, in place of dx: another layer may have written
  /// before, and inputs from one source have the same gradient. Empty if every input is x: dx is then their sum.
  std::span<const Gradient> d_inputs = {};
  const TableView* table = nullptr;  ///< of a layer with a table

  ConstMatrix input(std::size_t i) const { return inputs.empty() ? x : inputs[i]; }
  /// Returns whether all inputs come from one source, whose gradient nobody has written: dx may be overwritten with the
  /// sum. The layer then calls d_inputs.front().beta() if there are d_inputs.
  bool from_one_source() const {
    for (const Gradient& gradient : d_inputs)
      if (gradient.written() || gradient.data() != d_inputs.front().data()) return false;
    return true;
  }
  /// Returns whether the parameters' gradients are wanted: all or none, because a layer's tensors lie in one unit.
  bool wants_gradients() const { return !gradients.empty() && gradients.front().wanted(); }
};

class DeviceLayer;

/// A layer computes. It holds no parameters, activations or state, so that one object serves every micro-batch.
/// Deterministic: the same inputs give the same bits.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The parameters that the layer reads, by name. If another layer uses the same name, both share the tensor.
  virtual std::vector<TensorSpec> tensors() const { return {}; }
  /// State that is not trained by gradients, by names that are unique in the model, such as batch norm's running
  /// statistics. Training changes it, and evaluation reads it. Training results must not depend on it, because only
  /// worker 0's state is kept.
  virtual std::vector<TensorSpec> buffers() const { return {}; }
  /// The table whose rows the layer reads: an index in Model::tables. One layer reads a table.
  virtual std::optional<std::size_t> table() const { return std::nullopt; }
  /// Names of the inputs, in their order; the first is x. Graph::add connects inputs by these names.
  virtual std::vector<std::string> inputs() const { return {"x"}; }
  /// Returns the shape of y for an x of shape `in`. Throws usage if the layer does not accept the shape.
  virtual Shape output(Shape in) const { return in; }
  /// Returns the shape of y for inputs of these shapes. A layer with several inputs overrides this.
  virtual Shape output_of(std::span<const Shape> in) const { return output(in.front()); }
  /// Values that backward needs from forward besides inputs and y: in f32 (statistics), and in the type of activations.
  /// `in` is the shape of x, here and below.
  virtual std::size_t saved_floats(Shape /*in*/) const { return 0; }
  virtual std::size_t saved_activations(Shape /*in*/) const { return 0; }
  virtual std::size_t scratch_floats(Shape /*in*/) const { return 0; }
  /// Floating-point operations of forward and backward, without recomputation, for reports.
  virtual double flops(Shape /*in*/, Wanted /*wanted*/) const { return 0; }
  /// Appends the matrix products of one forward and backward in call order; benchmarks measure their ceiling with these
  /// products.
  virtual void gemms(Shape /*in*/, Wanted /*wanted*/, std::vector<Gemm>& /*list*/) const {}

  /// The sums over the tensor-parallel group in a forward and a backward; a rank's bytes are predicted from these.
  virtual LayerSums tensor_sums(Shape /*in*/, Wanted /*wanted*/) const { return {}; }

  virtual void forward(const Forward& pass) const = 0;
  virtual void backward(const Backward& pass) const = 0;

  /// Makes the layer's implementation for GPUs (device/device_layer.h); null if it runs only on the host.
  virtual std::unique_ptr<DeviceLayer> on_device() const;
};

}  // namespace psring::worker
