#pragma once

#include <span>
#include <string>
#include <vector>

#include <psring/worker/model/layer.h>

namespace psring::worker {

// Layers that join branches of a graph.

/// y = activation(a + b): a residual connection. The inputs `a` and `b` have one shape.
class Add final : public Layer {
 public:
  enum class Activation { none, relu };
  explicit Add(Activation activation = Activation::none) : activation_(activation) {}

  std::vector<std::string> inputs() const override { return {"a", "b"}; }
  Shape output_of(std::span<const Shape> in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  Activation activation_;
};

/// Each row of y is the row of `a`, then the row of `b`. The inputs have the same number of rows.
class Concat final : public Layer {
 public:
  std::vector<std::string> inputs() const override { return {"a", "b"}; }
  Shape output_of(std::span<const Shape> in) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;
};

}  // namespace psring::worker
