#include <Eigen/QR>
#include <algorithm>
#include <functional>
#include <numeric>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/optim/codec/codes.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Columns = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic>;

Eigen::Map<const Matrix> matrix(std::span<const float> values, std::size_t rows, std::size_t cols) {
  check(values.size() == rows * cols, "{} elements for a matrix of {} x {}", values.size(), rows, cols);
  return {values.data(), static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols)};
}
Eigen::Map<Matrix> matrix(std::span<float> values, std::size_t rows, std::size_t cols) {
  check(values.size() == rows * cols, "{} elements for a matrix of {} x {}", values.size(), rows, cols);
  return {values.data(), static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols)};
}

}  // namespace

std::optional<std::size_t> power_sgd_rank(const std::string& compress) {
  const Spec spec = Spec::parse("--compress", compress);
  if (spec.name() != "power-sgd") return std::nullopt;
  spec.allow_only({"rank"});
  const std::size_t rank = spec.positive("rank", 2);
  if (rank > kMostRank) fail(ErrorKind::usage, "--compress {}: expected a rank from 1 to {}", spec.text(), kMostRank);
  return rank;
}

std::optional<LowRank> low_rank(std::span<const std::size_t> shape, std::size_t rank) {
  if (shape.size() < 2) return std::nullopt;
  const std::size_t cols =
      std::accumulate(shape.begin() + 1, shape.end(), std::size_t{1}, std::multiplies<std::size_t>());
  const LowRank dims{shape[0], cols, std::min({rank, shape[0], cols})};
  if (dims.p_elements() + dims.q_elements() >= dims.elements()) return std::nullopt;
  return dims;
}

void initial_q(const LowRank& dims, std::uint64_t seed, std::uint32_t tensor, std::span<float> q) {
  const CounterRng rng({.seed = seed, .purpose = Purpose::compress, .tensor = tensor});
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = rng.normal(i);
  orthonormalise(q, dims.rank);
}

void project(const LowRank& dims, std::span<const float> m, std::span<const float> q, std::span<float> p) {
  matrix(p, dims.rows, dims.rank).noalias() = matrix(m, dims.rows, dims.cols) * matrix(q, dims.cols, dims.rank);
}

void project_back(const LowRank& dims, std::span<const float> m, std::span<const float> p, std::span<float> q) {
  matrix(q, dims.cols, dims.rank).noalias() =
      matrix(m, dims.rows, dims.cols).transpose() * matrix(p, dims.rows, dims.rank);
}

void reconstruct(const LowRank& dims, std::span<const float> p, std::span<const float> q, std::span<float> m) {
  if (!all_finite(p) || !all_finite(q)) return std::fill(m.begin(), m.end(), kNaN);
  matrix(m, dims.rows, dims.cols).noalias() =
      matrix(p, dims.rows, dims.rank) * matrix(q, dims.cols, dims.rank).transpose();
}

void orthonormalise(std::span<float> columns, std::size_t rank) {
  if (!all_finite(columns)) return std::fill(columns.begin(), columns.end(), kNaN);
  const auto at = matrix(columns, columns.size() / rank, rank);
  // In f64, squares of f32 values neither overflow nor underflow.
  const Eigen::HouseholderQR<Columns> qr(at.cast<double>());
  const Columns basis = qr.householderQ() * Columns::Identity(at.rows(), at.cols());
  matrix(columns, columns.size() / rank, rank) = basis.cast<float>();
}

PowerSgd::PowerSgd(const Layout& layout, const std::vector<std::size_t>& units, std::size_t rank, std::uint64_t seed)
    : seed_(seed) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    const UnitLayout& unit = layout.units[units[u]];
    if (!unit.trained) continue;
    for (const TensorLayout& placed : unit.tensors) {
      const Range range{placed.offset, placed.offset + placed.spec.elements()};
      Tensor tensor{
          u, range, placed.id, placed.spec.name, low_rank(placed.spec.shape, rank), first_elements_, second_elements_};
      first_elements_ += elements_of_first(tensor);
      second_elements_ += tensor.matrix ? tensor.matrix->q_elements() : 0;
      tensors_.push_back(std::move(tensor));
    }
  }
}

std::size_t PowerSgd::elements_of_first(const Tensor& tensor) {
  return tensor.matrix ? tensor.matrix->p_elements() : tensor.range.size();
}

void PowerSgd::begin(std::span<float> start) const {
  for (const Tensor& each : tensors_)
    if (each.matrix) initial_q(*each.matrix, seed_, each.id, start.subspan(each.second, each.matrix->q_elements()));
}

void PowerSgd::encode_first(Values values, std::span<const float> start, std::span<float> first) const {
  for (const Tensor& each : tensors_) {
    const auto from = values[each.unit].subspan(each.range.begin, each.range.size());
    const auto to = first.subspan(each.first, elements_of_first(each));
    if (each.matrix)
      project(*each.matrix, from, start.subspan(each.second, each.matrix->q_elements()), to);
    else
      std::ranges::copy(from, to.begin());
  }
}

void PowerSgd::encode_second(Values values, std::span<float> first, std::span<float> second) const {
  for (const Tensor& each : tensors_) {
    if (!each.matrix) continue;
    const auto p = first.subspan(each.first, each.matrix->p_elements());
    orthonormalise(p, each.matrix->rank);
    project_back(*each.matrix, values[each.unit].subspan(each.range.begin, each.range.size()), p,
                 second.subspan(each.second, each.matrix->q_elements()));
  }
}

void PowerSgd::subtract(std::span<const float> first, std::span<const float> second, Results values) const {
  for (const Tensor& each : tensors_) {
    const auto from = values[each.unit].subspan(each.range.begin, each.range.size());
    if (!each.matrix) {
      std::ranges::fill(from, 0.0F);
      continue;
    }
    const LowRank& dims = *each.matrix;
    matrix(from, dims.rows, dims.cols).noalias() -=
        matrix(first.subspan(each.first, dims.p_elements()), dims.rows, dims.rank) *
        matrix(second.subspan(each.second, dims.q_elements()), dims.cols, dims.rank).transpose();
  }
}

void PowerSgd::decode(std::span<const float> first, std::span<const float> second, Results out) const {
  for (const std::span<float> unit : out) std::ranges::fill(unit, 0.0F);
  for (const Tensor& each : tensors_) {
    const auto from = first.subspan(each.first, elements_of_first(each));
    const auto to = out[each.unit].subspan(each.range.begin, each.range.size());
    if (each.matrix)
      reconstruct(*each.matrix, from, second.subspan(each.second, each.matrix->q_elements()), to);
    else
      std::ranges::copy(from, to.begin());
  }
}

void PowerSgd::next_start(std::span<const float> second, std::span<float> start) const {
  if (!all_finite(second)) return;
  std::ranges::copy(second, start.begin());
  for (const Tensor& each : tensors_)
    if (each.matrix) orthonormalise(start.subspan(each.second, each.matrix->q_elements()), each.matrix->rank);
}

UnitLayout PowerSgd::start_tensors() const {
  UnitLayout unit{.name = "power-sgd", .tensors = {}, .elements = second_elements_};
  for (const Tensor& each : tensors_)
    if (each.matrix)
      unit.tensors.push_back(
          {{"power-sgd." + each.name, {each.matrix->cols, each.matrix->rank}, {}}, each.id, each.second});
  return unit;
}

}  // namespace psring::optim
