#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `dlrm:dense=4,features=8,dim=16,bottom=64-16,top=64-32-1`: Naumov et al., "Deep Learning Recommendation Model for
/// Personalization and Recommendation Systems", arXiv:1906.00091. The dense inputs go through the linear layers
/// `bottom`, each with ReLU; their last width is `dim`. Each feature's keys are looked up in one table, `rows`. The
/// products of all pairs among these vectors, beside the first of them, go through the linear layers `top`, with ReLU
/// between them. The output is a logit; the loss is binary cross-entropy. The tensors are `bottom.<i>.weight`,
/// `bottom.<i>.bias` and `top.…` alike. Metrics: auc. Throws usage, naming --model.
Model make_dlrm(const Spec& spec);

/// y = the first vector, then the product of vectors j < i for i = 1, 2, … and j = 0, 1, …. The inputs are `dense`
/// [rows, width], the first vector, and `rows` [rows, features * width], the others.
class Interaction final : public Layer {
 public:
  Interaction(std::size_t features, std::size_t width) : vectors_(features + 1), width_(width) {}

  std::vector<std::string> inputs() const override { return {"dense", "rows"}; }
  Shape output_of(std::span<const Shape> in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  std::size_t pairs() const { return vectors_ * (vectors_ - 1) / 2; }

  const std::size_t vectors_;
  const std::size_t width_;
};

}  // namespace psring::worker
