#pragma once

#include <cstddef>
#include <span>

#include <psring/common/base/error.h>
#include <psring/common/base/range.h>
#include <psring/worker/model/layer.h>

namespace psring::worker {

/// What Pieces takes for n floats: pieces start on multiples of 64 bytes.
constexpr std::size_t piece(std::size_t n) { return round_up(n, 16); }

/// Hands out the parts of a `saved` or `scratch` buffer, front to back: piece(n) floats for each n.
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

/// y = x + bias in every row. Equal shapes; bias has x.cols elements. `y` may be `x`.
void add_bias(ConstMatrix x, std::span<const float> bias, Matrix y);

/// The gradient of a bias: `into` = beta * into + the sum of dy's rows, in f32, four rows and then 64 rows
/// added up before they meet the total; always in the same order. `scratch` holds dy.cols floats.
void add_column_sums(ConstMatrix dy, float beta, std::span<float> into, std::span<float> scratch);

}  // namespace psring::worker
