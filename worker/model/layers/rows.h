#pragma once

#include <cstddef>
#include <span>

#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// Floats that Pieces takes for n floats: pieces are aligned to 64 bytes.
constexpr std::size_t piece(std::size_t n) { return round_up(n, 16); }

/// Hands out the parts of a `saved` or `scratch` buffer in order: piece(n) floats for each n.
template <class T>
class Pieces {
 public:
  explicit Pieces(std::span<T> buffer) : rest_(buffer) {}
  std::span<T> take(std::size_t n) {
    check(rest_.size() >= piece(n), "a buffer is {} floats short", piece(n) - rest_.size());
    const std::span<T> taken = rest_.first(n);
    rest_ = rest_.subspan(piece(n));
    return taken;
  }

 private:
  std::span<T> rest_;
};

/// Returns the product of two vectors, in eight lanes that are added in order.
float dot_product(const float* a, const float* b, std::size_t n);

/// y = x + bias in every row. The shapes must be equal; bias has x.cols elements. `y` may be `x`.
void add_bias(ConstMatrix x, std::span<const float> bias, Matrix y);

/// Computes the gradient of a bias: `into` = beta * into + the sum of dy's rows, in f32. Groups of 4 and then of 64
/// rows are summed before they are added to the total, always in the same order. `scratch` holds dy.cols floats.
void add_column_sums(ConstMatrix dy, float beta, std::span<float> into, std::span<float> scratch);

}  // namespace psring::worker
