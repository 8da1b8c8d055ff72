#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `fm:dense=4,features=8,dim=8`: a factorization machine (Rendle, "Factorization Machines", ICDM 2010). Each key has a
/// row of dim + 1 values: a weight and a vector. All features share one table, `rows`. The output is a logit, and the
/// loss is binary cross-entropy. The tensors are `linear.weight` (of the real inputs; none with dense=0) and `bias`.
/// Metrics: auc. Throws usage, naming --model.
Model make_fm(const Spec& spec);

/// `mf:dim=16`: matrix factorization with biases (Koren, Bell, Volinsky, "Matrix Factorization Techniques for
/// Recommender Systems", 2009), which is a factorization machine of two features, user and item, without real inputs.
/// The loss is the mean square of the error. Metrics: rmse. Throws usage, naming --model.
Model make_mf(const Spec& spec);

/// x is [rows, features * (dim + 1)]: for each feature a weight w, then a vector v. y is [rows, 1]: `bias` + the sum of
/// w + the sum of v_f . v_g over f < g, computed as half of |sum of v|^2 - sum of |v|^2.
class FactorizationMachine final : public Layer {
 public:
  FactorizationMachine(std::size_t features, std::size_t dim) : features_(features), width_(dim + 1) {}

  std::vector<TensorSpec> tensors() const override { return {{"bias", {1}, {}}}; }
  Shape output(Shape in) const override;
  std::size_t scratch_floats(Shape /*in*/) const override { return width_; }
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  /// Writes the sum over the features: of weights to sums[0], and of vectors behind it.
  void add_up(const float* x, std::span<float> sums) const;

  const std::size_t features_;
  const std::size_t width_;
};

}  // namespace psring::worker
