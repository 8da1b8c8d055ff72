#pragma once

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/model.h>

namespace psring::worker {

/// `two-tower:dim=16,mode=sum`: two things, each described by any number of features, belong together by the product of
/// their vectors (Yi et al., "Sampling-bias-corrected neural modeling for large corpus item recommendations", RecSys
/// 2019, without hidden layers). A thing's vector is the sum, or the mean, of its features' rows in the table `first`
/// or `second`. The output is a logit; the loss is binary cross-entropy. The tensor is `bias`. Metrics: auc. Throws
/// usage, naming --model.
Model make_two_tower(const Spec& spec);

/// `skip-gram:dim=64,negatives=5`: word vectors by negative sampling (Mikolov et al., arXiv:1310.4546). The logit of a
/// word and a context is the product of the word's row in the table `words` and the context's row in `contexts`, plus
/// the one number of the tensor `bias`. The first key of a sample is the word, the second its context, the others
/// negatives. Throws usage, naming --model.
Model make_skip_gram(const Spec& spec);

/// y [rows, count]: `bias` + the product of the vector of `one` [rows, width] and each vector of `many` [rows, count *
/// width].
class DotProducts final : public Layer {
 public:
  DotProducts(std::size_t count, std::size_t width) : count_(count), width_(width) {}

  std::vector<std::string> inputs() const override { return {"one", "many"}; }
  std::vector<TensorSpec> tensors() const override { return {{"bias", {1}, {}}}; }
  Shape output_of(std::span<const Shape> in) const override;
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  const std::size_t count_;
  const std::size_t width_;
};

}  // namespace psring::worker
