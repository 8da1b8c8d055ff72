#pragma once

#include <cstddef>
#include <string>

#include <psring/common/base/range.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Sets each element to 0 with probability p, and scales the others by 1 / (1 - p); evaluation passes x on (Srivastava
/// et al., "Dropout", JMLR 2014; as PyTorch's nn.Dropout). The elements that are dropped depend on the seed, the step,
/// the layer and the sample's position in the global batch alone: see Randomness. Saves one bit per element.
class Dropout final : public Layer {
 public:
  /// The columns of x in a whole activation of `whole` columns, under tensor parallelism: an element is dropped in a
  /// part if it is dropped in the whole.
  struct Columns {
    Range part;
    std::size_t whole = 0;  ///< 0: x has all columns
  };

  /// REQUIRES: 0 <= p < 1.
  explicit Dropout(double p) : Dropout(p, {}) {}
  Dropout(double p, Columns columns);

  std::size_t saved_floats(Shape in) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  std::uint32_t below_;  ///< an element is dropped if its random word is below this
  float scale_;
  Columns columns_;
};

/// Parses a probability such as the `0.2` of a model's `d0.2`. Throws usage, naming --model and `model`, unless it is a
/// number in [0, 1).
double parse_dropout(const std::string& text, const std::string& model);

}  // namespace psring::worker
