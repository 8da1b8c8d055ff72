#pragma once

#include <cstddef>

#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>

namespace psring::worker {

/// Elements that MatrixPieces takes for n elements: pieces are aligned to 256 bytes for every type.
constexpr std::size_t matrix_piece(std::size_t n) { return round_up(n, 128); }

/// Hands out the parts of a buffer in order: matrix_piece(n) elements for each n.
class MatrixPieces {
 public:
  explicit MatrixPieces(Elements buffer) : rest_(buffer) {}
  Elements take(std::size_t n) {
    check(rest_.size() >= matrix_piece(n), "a buffer is {} elements short", matrix_piece(n) - rest_.size());
    const Elements taken = rest_.subspan(0, n);
    rest_ = rest_.subspan(matrix_piece(n), rest_.size() - matrix_piece(n));
    return taken;
  }

 private:
  Elements rest_;
};

}  // namespace psring::worker
