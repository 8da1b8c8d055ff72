#pragma once

#include <cstddef>
#include <optional>

#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Looks the keys of each sample up in a table: y holds, for each feature of a sample, the sum of the rows of the
/// feature's keys, or zeros if there is no key. y is [samples, features * width]; x is read for the number of samples
/// alone. The gradient of a row is the sum over the keys that name it, in the order of the batch.
class EmbeddingBag final : public Layer {
 public:
  /// `table`: an index in Model::tables.
  EmbeddingBag(std::size_t table, std::size_t features, std::size_t width)
      : table_(table), features_(features), width_(width) {}

  std::optional<std::size_t> table() const override { return table_; }
  Shape output(Shape in) const override { return {in.rows, features_ * width_}; }
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  const std::size_t table_;
  const std::size_t features_;
  const std::size_t width_;
};

}  // namespace psring::worker
