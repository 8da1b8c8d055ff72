#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <psring/common/base/text/spec.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Looks the keys of each sample up in a table: y holds, for each feature of a sample, the sum or the mean of the rows
/// of the feature's keys, or zeros if there is no key. y is [samples, features * width]; x is read for the number of
/// samples alone. The gradient of a row is the sum over the keys that name it, in the order of the batch.
class EmbeddingBag final : public Layer {
 public:
  enum class Mode : std::uint8_t { sum, mean };

  /// `table`: an index in Model::tables.
  EmbeddingBag(std::size_t table, std::size_t features, std::size_t width, Mode mode = Mode::sum)
      : table_(table), features_(features), width_(width), mode_(mode) {}

  std::optional<std::size_t> table() const override { return table_; }
  Shape output(Shape in) const override { return {in.rows, features_ * width_}; }
  double flops(Shape in, Wanted wanted) const override;
  void forward(const Forward& pass) const override;
  void backward(const Backward& pass) const override;

 private:
  const std::size_t table_;
  const std::size_t features_;
  const std::size_t width_;
  const Mode mode_;
};

/// Features that share a table, and the width of their rows.
struct TableSize {
  std::size_t features;
  std::size_t width;
};
inline constexpr std::size_t kMostDense = 65536;  ///< dense inputs of a sample

/// Returns both numbers if they are not too large. Throws usage, naming --model.
TableSize table_size_of(const Spec& spec, std::size_t features, std::size_t width);

}  // namespace psring::worker
