#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>

namespace psring::optim {

// PowerSGD (Vogels, Karimireddy, Jaggi, arXiv:1905.13727): a gradient matrix M of rows x cols is approximated by P Qt,
// with P of rows x rank and Q of cols x rank. One step, with Q from the step before:
//
//   P = M Q          all-reduce: mean of all workers' P
//   P = orthonormal basis of P's columns
//   Q = Mt P         all-reduce: mean of all workers' Q
//   M ~ P Qt         error feedback adds M - P Qt to the next gradient
//
// The two all-reduces move (rows + cols) rank elements instead of rows cols. P and Q are linear in M, so the result is
// the approximation of the mean gradient. Matrices are f32 and row-major. All functions are pure, and all workers get
// the same bits from the same means, on processors of any kind.

/// A tensor as the matrix to approximate.
struct LowRank {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t rank = 0;  ///< rank of the approximation: at most min(rows, cols)

  std::size_t elements() const { return rows * cols; }
  std::size_t p_elements() const { return rows * rank; }
  std::size_t q_elements() const { return cols * rank; }
};

/// Higher ranks are refused: Eigen would compute in blocks that depend on the processor's cache size, and so would the
/// bits.
inline constexpr std::size_t kMostRank = 32;

/// Returns the rank of "power-sgd:rank=R" (2 by default); nothing for other codecs. Throws usage unless 1 <= R <=
/// kMostRank.
std::optional<std::size_t> power_sgd_rank(const std::string& compress);

/// Returns the matrix of a tensor: the first dimension gives the rows, the other dimensions together the columns; the
/// rank is at most min(rows, cols). Returns nothing if the tensor has fewer than two dimensions, or if its factors are
/// not smaller than the tensor. Such a tensor is sent uncompressed.
std::optional<LowRank> low_rank(std::span<const std::size_t> shape, std::size_t rank);

/// Computes the Q of a run's first step: orthonormal columns from random normal numbers, which depend only on seed and
/// tensor.
void initial_q(const LowRank& dims, std::uint64_t seed, std::uint32_t tensor, std::span<float> q);
/// p = m q
void project(const LowRank& dims, std::span<const float> m, std::span<const float> q, std::span<float> p);
/// q = mt p
void project_back(const LowRank& dims, std::span<const float> m, std::span<const float> p, std::span<float> q);
/// m = p qt. A NaN or infinity in a factor makes the whole matrix NaN, so that the step is detected as non-finite.
void reconstruct(const LowRank& dims, std::span<const float> p, std::span<const float> q, std::span<float> m);
/// Replaces the columns (rank of them, row-major) by an orthonormal basis of their span, from Householder's QR in f64.
/// Linearly dependent columns are replaced by columns that complete the basis. A NaN or infinity makes all elements
/// NaN.
void orthonormalise(std::span<float> columns, std::size_t rank);

/// The factors of all trained tensors of some units, in two vectors, which the two all-reduces of a bucket move.
/// Tensors that are not approximated are part of the first vector, uncompressed.
class PowerSgd {
 public:
  /// The elements of each unit, in the order of `units`, including padding.
  using Values = std::span<const std::span<const float>>;
  using Results = std::span<const std::span<float>>;

  /// Units that are not trained are ignored.
  PowerSgd(const Layout& layout, const std::vector<std::size_t>& units, std::size_t rank, std::uint64_t seed);

  /// The sizes of the first and the second all-reduce, in elements.
  std::size_t first_elements() const { return first_elements_; }
  std::size_t second_elements() const { return second_elements_; }
  std::size_t payload_bytes() const { return (first_elements_ + second_elements_) * sizeof(float); }

  /// Computes the Qs of the first step. `start`: the Qs of all matrices at the begin of a step, second_elements()
  /// elements. They are the same at all workers, and are part of the run's state.
  void begin(std::span<float> start) const;
  /// Computes this worker's contribution to the first all-reduce.
  void encode_first(Values values, std::span<const float> start, std::span<float> first) const;
  /// Computes this worker's contribution to the second all-reduce. `first`: the mean of the first all-reduce, in which
  /// each P is made orthonormal.
  void encode_second(Values values, std::span<float> first, std::span<float> second) const;
  /// Subtracts this worker's own approximation from its values, so that they become the part that compression lost.
  /// Tensors that are not approximated become zero. `first`, `second`: as encode_second left them.
  void subtract(std::span<const float> first, std::span<const float> second, Results values) const;
  /// Computes the approximated mean gradient from both means; padding is zero.
  void decode(std::span<const float> first, std::span<const float> second, Results out) const;
  /// Computes the start of the next step from the mean of the second all-reduce. If a mean has a NaN or infinity, as in
  /// a skipped step, the start does not change.
  void next_start(std::span<const float> second, std::span<float> start) const;
  /// Returns the start as tensors of [cols, rank], named after the tensors that they approximate. Checkpoints save
  /// them.
  UnitLayout start_tensors() const;

 private:
  struct Tensor {
    std::size_t unit = 0;  ///< position in the list of units
    Range range;           ///< in the unit
    std::uint32_t id = 0;
    std::string name;
    std::optional<LowRank> matrix;
    std::size_t first = 0;   ///< offset of P, or of the tensor itself, in the first vector
    std::size_t second = 0;  ///< offset of Q in the second vector
  };
  static std::size_t elements_of_first(const Tensor& tensor);

  const std::uint64_t seed_;
  std::vector<Tensor> tensors_;
  std::size_t first_elements_ = 0;
  std::size_t second_elements_ = 0;
};

}  // namespace psring::optim
