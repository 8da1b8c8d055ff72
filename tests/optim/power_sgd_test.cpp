// PowerSGD's arithmetic: shapes, bytes, factors, and the gradients that several workers' factors stand for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/optim/codec/power_sgd.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::test;
using optim::LowRank;

namespace {

using Vector = std::vector<float>;

double norm(const Vector& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

/// |a - b| / |a|
double distance(const Vector& a, const Vector& b) {
  Vector difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm(difference) / norm(a);
}

/// The k-th of `size` orthonormal vectors (discrete cosine transform).
double cosine(std::size_t k, std::size_t i, std::size_t size) {
  const auto n = static_cast<double>(size);
  const double angle = std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(k) / n;
  return std::sqrt((k == 0 ? 1 : 2) / n) * std::cos(angle);
}

/// A matrix with singular values 1, 1/2, 1/4, ...
Vector falling(std::size_t rows, std::size_t cols) {
  Vector values(rows * cols);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j)
      for (std::size_t k = 0; k < std::min(rows, cols); ++k)
        values[i * cols + j] +=
            static_cast<float>(std::ldexp(cosine(k, i, rows) * cosine(k, j, cols), -static_cast<int>(k)));
  return values;
}

/// The approximation of a matrix after some steps that begin with the Q of the step before.
Vector approximate(const LowRank& of, const Vector& m, int steps = 1) {
  Vector q(of.q_elements());
  Vector p(of.p_elements());
  Vector result(of.elements());
  optim::initial_q(of, 7, 3, q);
  for (int step = 0; step < steps; ++step) {
    if (step > 0) optim::orthonormalise(q, of.rank);
    optim::project(of, m, q, p);
    optim::orthonormalise(p, of.rank);
    optim::project_back(of, m, p, q);
  }
  optim::reconstruct(of, p, q, result);
  return result;
}

void check_orthonormal(const Vector& columns, std::size_t rank) {
  for (std::size_t a = 0; a < rank; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      double product = 0;
      for (std::size_t i = a, j = b; i < columns.size(); i += rank, j += rank)
        product += double{columns[i]} * columns[j];
      CAPTURE(rank, a, b);
      CHECK(product == Approx(a == b ? 1 : 0).margin(1e-6));
    }
}

/// Three tensors and padding in one unit, a frozen unit, and a unit of one tensor.
Layout small_layout() {
  const Init init{Init::Kind::normal, 1};
  return make_layout(
      {{"a", {{{"a.weight", {20, 30}, init}, 0}, {{"a.bias", {20}, init}, 1}, {{"a.kernel", {6, 5, 4}, init}, 2}}},
       {"frozen", {{{"frozen.weight", {9, 9}, init}, 3}}, false},
       {"b", {{{"b.weight", {8, 7}, init}, 4}}}},
      1);
}

/// The gradients of all trained units of small_layout() at one worker; padding is zero.
std::vector<Vector> gradients(const Layout& layout, std::uint64_t seed) {
  std::vector<Vector> all;
  for (const std::size_t unit : {0, 2}) {
    all.push_back(normal_values(layout.units[unit].elements, seed + unit));
    clear_padding(layout.units[unit], {0, all.back().size()}, all.back());
  }
  return all;
}

template <class T>
std::vector<std::span<T>> spans(std::vector<Vector>& of) {
  return {of.begin(), of.end()};
}
std::vector<std::span<const float>> spans(const std::vector<Vector>& of) { return {of.begin(), of.end()}; }

Vector mean(const std::vector<Vector>& all) {
  Vector sum(all[0].size());
  for (const Vector& each : all)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += each[i] / static_cast<float>(all.size());
  return sum;
}

/// One step of several workers; returns the mean gradient that all of them decode, and moves `start` on.
std::vector<Vector> step(const optim::PowerSgd& codec, const std::vector<std::vector<Vector>>& workers, Vector& start) {
  std::vector<Vector> firsts;
  for (const auto& worker : workers)
    codec.encode_first(spans(worker), start, firsts.emplace_back(codec.first_elements()));
  const Vector first_mean = mean(firsts);
  Vector first;
  std::vector<Vector> seconds;
  for (const auto& worker : workers) {
    first = first_mean;
    codec.encode_second(spans(worker), first, seconds.emplace_back(codec.second_elements()));
  }
  const Vector second = mean(seconds);
  std::vector<Vector> out;
  for (const Vector& unit : workers[0]) out.emplace_back(unit.size(), 77.0F);
  codec.decode(first, second, spans<float>(out));
  codec.next_start(second, start);
  return out;
}

Vector started(const optim::PowerSgd& codec) {
  Vector start(codec.second_elements());
  codec.begin(start);
  return start;
}

}  // namespace

TEST_CASE("a tensor is a matrix of its first dimension and the others, if its factors are smaller") {
  const auto shape = [](std::vector<std::size_t> of, std::size_t rank) -> std::vector<std::size_t> {
    const auto found = optim::low_rank(of, rank);
    if (!found) return {};
    return {found->rows, found->cols, found->rank};
  };
  CHECK(shape({512, 784}, 4) == std::vector<std::size_t>{512, 784, 4});
  CHECK(shape({16, 3, 5, 5}, 2) == std::vector<std::size_t>{16, 75, 2});
  CHECK(shape({2, 100}, 1) == std::vector<std::size_t>{2, 100, 1});
  CHECK(shape({512}, 4).empty());
  CHECK(shape({}, 4).empty());
  CHECK(shape({2, 100}, 2).empty());  // 204 elements instead of 200
  CHECK(shape({1, 100}, 1).empty());
  CHECK(shape({0, 100}, 1).empty());
}

TEST_CASE("power-sgd is named with a rank") {
  CHECK(optim::power_sgd_rank("power-sgd") == 2);
  CHECK(optim::power_sgd_rank("power-sgd:rank=32") == 32);
  CHECK(optim::power_sgd_rank("int8") == std::nullopt);
  CHECK(optim::power_sgd_rank("none") == std::nullopt);
  for (const char* text :
       {"power-sgd:rank=0", "power-sgd:rank=33", "power-sgd:rank=1.5", "power-sgd:ratio=1", "power-sgd:2"})
    CHECK_THAT(error_of(ErrorKind::usage, [&] { optim::power_sgd_rank(text); }), Catch::Contains("--compress"));
}

TEST_CASE("a full rank gives the matrix again, to rounding") {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {1, 9}, {9, 1}, {5, 5}, {12, 30}, {30, 12}, {32, 200}, {200, 32}}) {
    const LowRank of{static_cast<std::size_t>(rows), static_cast<std::size_t>(cols),
                     static_cast<std::size_t>(std::min(rows, cols))};
    CAPTURE(rows, cols);
    const Vector m = normal_values(of.elements(), 1);
    CHECK(distance(m, approximate(of, m)) < 1e-5);
  }
}

TEST_CASE("the error falls with the rank, and after some steps is the smallest that the rank allows") {
  const Vector m = falling(40, 60);
  double before = 1;
  for (const std::size_t rank : {1, 2, 3, 4, 8, 16}) {
    CAPTURE(rank);
    const double error = distance(m, approximate({40, 60, rank}, m));
    CHECK(error < before);
    before = error;
    // |M| of singular values from 2^-rank on is 2^-rank of the whole.
    CHECK(distance(m, approximate({40, 60, rank}, m, 30)) ==
          Approx(std::ldexp(1, -static_cast<int>(rank))).epsilon(0.01));
  }
}

TEST_CASE("columns become an orthonormal basis of their span, whatever their size") {
  for (const std::size_t rows : {1, 2, 7, 32, 100, 1000})
    for (const std::size_t rank : {1, 2, 5, 32}) {
      if (rank > rows) continue;
      for (const float scale : {1.0F, 1e-38F, 1e30F}) {
        Vector columns = normal_values(rows * rank, rows + rank, scale);
        optim::orthonormalise(columns, rank);
        check_orthonormal(columns, rank);
      }
    }
  // A column stays what it was but for its length and sign.
  Vector one{3, 0, 4};
  optim::orthonormalise(one, 1);
  CHECK(std::abs(one[0]) == Approx(0.6));
  CHECK(one[2] / one[0] == Approx(4.0 / 3));
  CHECK(one[1] == 0);
}

TEST_CASE("zeros and columns that depend on each other give a basis, too") {
  Vector zeros(60);
  optim::orthonormalise(zeros, 3);
  check_orthonormal(zeros, 3);
  Vector twins = normal_values(60, 1);
  for (std::size_t i = 0; i < 60; i += 3) twins[i + 1] = 2 * twins[i];
  optim::orthonormalise(twins, 3);
  check_orthonormal(twins, 3);
  const Vector nothing(600);
  CHECK(norm(approximate({20, 30, 2}, nothing, 3)) == 0);
}

TEST_CASE("bits depend on the values alone, neither on where they lie nor on a call before") {
  const LowRank of{37, 53, 3};
  const Vector m = normal_values(of.elements(), 1);
  const Vector expected = approximate(of, m, 3);
  CHECK(approximate(of, m, 3) == expected);
  Vector q(of.q_elements() + 8);
  Vector p(of.p_elements() + 8);
  Vector moved(of.elements() + 8);
  Vector result(of.elements() + 8);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    CAPTURE(shift);
    const auto at = [shift](Vector& in, std::size_t size) { return std::span(in).subspan(shift, size); };
    std::ranges::copy(m, moved.begin() + static_cast<std::ptrdiff_t>(shift));
    optim::initial_q(of, 7, 3, at(q, of.q_elements()));
    for (int i = 0; i < 3; ++i) {
      if (i > 0) optim::orthonormalise(at(q, of.q_elements()), of.rank);
      optim::project(of, at(moved, of.elements()), at(q, of.q_elements()), at(p, of.p_elements()));
      optim::orthonormalise(at(p, of.p_elements()), of.rank);
      optim::project_back(of, at(moved, of.elements()), at(p, of.p_elements()), at(q, of.q_elements()));
    }
    optim::reconstruct(of, at(p, of.p_elements()), at(q, of.q_elements()), at(result, of.elements()));
    CHECK(std::ranges::equal(at(result, of.elements()), expected));
  }
  Vector a(of.q_elements());
  Vector b(of.q_elements());
  optim::initial_q(of, 7, 3, a);
  optim::initial_q(of, 8, 3, b);
  CHECK(a != b);
  optim::initial_q(of, 7, 4, b);
  CHECK(a != b);
}

TEST_CASE("what is sent: both factors of each matrix, and the other trained tensors as they are") {
  const Layout layout = small_layout();
  const optim::PowerSgd codec(layout, {0, 1, 2}, 2, 1);
  // 20 x 30, 20, 6 x 20, 8 x 7; the frozen 9 x 9 has no part in it.
  CHECK(codec.first_elements() == 2 * (20 + 6 + 8) + 20);
  CHECK(codec.second_elements() == 2 * (30 + 20 + 7));
  CHECK(codec.payload_bytes() == 4 * (2 * (50 + 26 + 15) + 20));
  const optim::PowerSgd many(layout, {0, 2}, 32, 1);  // no factors are smaller than their tensor
  CHECK(many.first_elements() == 600 + 20 + 120 + 56);
  CHECK(many.second_elements() == 0);
}

TEST_CASE("all workers decode the approximation of the mean gradient, and padding stays zero") {
  const Layout layout = small_layout();
  const optim::PowerSgd codec(layout, {0, 2}, 2, 1);
  std::vector<std::vector<Vector>> workers;
  for (std::uint64_t w = 0; w < 3; ++w) workers.push_back(gradients(layout, 10 * w));
  std::vector<Vector> average;
  for (std::size_t u = 0; u < 2; ++u) average.push_back(mean({workers[0][u], workers[1][u], workers[2][u]}));
  Vector start = started(codec);
  Vector alone = start;
  const std::vector<Vector> out = step(codec, workers, start);
  const std::vector<Vector> expected = step(codec, {average}, alone);
  for (std::size_t u = 0; u < 2; ++u) {
    CHECK(distance(expected[u], out[u]) < 1e-5);
    Vector cleared = out[u];
    clear_padding(layout.units[u == 0 ? 0 : 2], {0, cleared.size()}, cleared);
    CHECK(cleared == out[u]);
  }
  const TensorLayout& bias = layout.units[0].tensors[1];
  for (std::size_t i = bias.offset; i < bias.offset + 20; ++i) CHECK(out[0][i] == average[0][i]);
  CHECK(start != started(codec));
}

TEST_CASE("a unit has the same factors in any bucket and in any order") {
  const Layout layout = small_layout();
  const std::vector<Vector> all = gradients(layout, 1);
  const optim::PowerSgd together(layout, {0, 2}, 2, 1);
  const optim::PowerSgd turned(layout, {2, 0}, 2, 1);
  const optim::PowerSgd second(layout, {2}, 2, 1);
  Vector a = started(together);
  Vector b = started(turned);
  Vector c = started(second);
  for (int i = 0; i < 3; ++i) {
    const std::vector<Vector> expected = step(together, {all}, a);
    const std::vector<Vector> other = step(turned, {{all[1], all[0]}}, b);
    CHECK(other[1] == expected[0]);
    CHECK(other[0] == expected[1]);
    CHECK(step(second, {{all[1]}}, c)[0] == expected[1]);
  }
}

TEST_CASE("with error feedback nothing is lost: what was decoded and what is kept add up to all gradients") {
  const Layout layout = small_layout();
  const optim::PowerSgd codec(layout, {0, 2}, 2, 1);
  Vector start = started(codec);
  std::vector<Vector> kept = gradients(layout, 1);
  for (Vector& unit : kept) std::ranges::fill(unit, 0.0F);
  double given = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::vector<Vector> sum = gradients(layout, 1000 + 10 * i);
    given += norm(sum[0]) * norm(sum[0]);
    for (std::size_t u = 0; u < 2; ++u)
      for (std::size_t e = 0; e < sum[u].size(); ++e) sum[u][e] += kept[u][e];
    const std::vector<Vector> out = step(codec, {sum}, start);
    for (std::size_t u = 0; u < 2; ++u)
      for (std::size_t e = 0; e < sum[u].size(); ++e) kept[u][e] = sum[u][e] - out[u][e];
  }
  CHECK(norm(kept[0]) < 0.5 * std::sqrt(given));
}

TEST_CASE("the residuals of several workers add up to what the mean of their gradients lost") {
  const Layout layout = small_layout();
  const optim::PowerSgd codec(layout, {0, 2}, 2, 1);
  Vector start = started(codec);
  const std::vector<std::vector<Vector>> workers{gradients(layout, 1), gradients(layout, 101), gradients(layout, 201)};
  std::vector<Vector> firsts;
  for (const auto& worker : workers)
    codec.encode_first(spans(worker), start, firsts.emplace_back(codec.first_elements()));
  std::vector<std::vector<Vector>> lost = workers;
  for (auto& worker : lost) {
    Vector first = mean(firsts);
    Vector second(codec.second_elements());
    codec.encode_second(spans(worker), first, second);
    codec.subtract(first, second, spans<float>(worker));
  }
  const std::vector<Vector> decoded = step(codec, workers, start);
  for (std::size_t u = 0; u < 2; ++u) {
    const Vector given = mean({workers[0][u], workers[1][u], workers[2][u]});
    const Vector left = mean({lost[0][u], lost[1][u], lost[2][u]});
    Vector sum = decoded[u];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += left[i];
    CHECK(distance(given, sum) < 1e-6);
    CHECK(norm(left) > 0.1 * norm(given));
  }
  const TensorLayout& bias = layout.units[0].tensors[1];  // is not approximated: nothing is lost
  for (std::size_t i = 0; i < bias.spec.elements(); ++i) CHECK(lost[0][0][bias.offset + i] == 0);
}

TEST_CASE("one non-finite element of one worker makes its tensor non-finite at all") {
  const Layout layout = small_layout();
  const optim::PowerSgd codec(layout, {0, 2}, 2, 1);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    for (const TensorLayout& tensor : layout.units[0].tensors)
      for (const std::size_t place : {std::size_t{0}, tensor.spec.elements() / 2, tensor.spec.elements() - 1}) {
        CAPTURE(bad, tensor.spec.name, place);
        std::vector<std::vector<Vector>> workers{gradients(layout, 1), gradients(layout, 2)};
        workers[1][0][tensor.offset + place] = bad;
        Vector start = started(codec);
        const std::vector<Vector> out = step(codec, workers, start);
        CHECK_FALSE(std::isfinite(out[0][tensor.offset + place]));
        CHECK(std::ranges::all_of(out[1], [](float value) { return std::isfinite(value); }));
      }
  // An overflow of a product alone is seen, too.
  Vector huge(20 * 30, 0x1p127F);
  CHECK(std::isnan(approximate({20, 30, 2}, huge)[0]));
}
