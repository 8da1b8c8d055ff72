// The layers' kernels, but for attention, against naive references in f64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "layer_kernels.h"

using namespace psring;
using namespace psring::test;
using worker::LossSums;
using worker::Product;
using worker::Rows;
using worker::TensorKernels;
using worker::TokenRows;

namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

Values product_of(const Gemm& s, const Values& a, const Values& b) {
  Values c(s.m * s.n);
  for (std::size_t i = 0; i < s.m; ++i)
    for (std::size_t j = 0; j < s.n; ++j)
      for (std::size_t k = 0; k < s.k; ++k)
        c[i * s.n + j] +=
            (s.transpose_a ? a[k * s.m + i] : a[i * s.k + k]) * (s.transpose_b ? b[j * s.k + k] : b[k * s.n + j]);
  return c;
}

}  // namespace

TEST_CASE("products on a device, with what follows them") {
  for (const DType type : kTypes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const auto& [m, n, k] : {std::array{5U, 16U, 9U}, std::array{33U, 7U, 20U}, std::array{4U, 24U, 9U}}) {
          const Gemm shape{.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b};
          const Values a = noise(type, m * k, 3);
          const Values b = noise(type, k * n, 4);
          const Values added = noise(type, m * n, 5);
          const Values bias = noise(type, n, 6);
          const OnDevice on_a(type, a);
          const OnDevice on_b(type, b);
          const OnDevice on_added(type, added);
          const OnDevice on_bias(type, bias);
          const OnDevice out(type, m * n);
          Values expected = product_of(shape, a, b);
          kernels().product({.shape = shape, .a = on_a, .b = on_b, .out = out});
          check_close(out.get(), expected, type);

          const OnDevice wide(DType::f32, m * n);
          kernels().product({.shape = shape, .a = on_a, .b = on_b, .out = wide});
          check_close(wide.get(), expected, DType::f32);
          Values twice = expected;
          for (double& value : twice) value *= 2;
          kernels().product({.shape = shape, .a = on_a, .b = on_b, .out = wide, .added = wide});
          check_close(wide.get(), twice, DType::f32);

          for (std::size_t i = 0; i < m * n; ++i) expected[i] += added[i] + bias[i % n];
          kernels().product({.shape = shape, .a = on_a, .b = on_b, .out = out, .added = on_added, .bias = on_bias});
          check_close(out.get(), expected, type);

          for (std::size_t i = 0; i < m * n; ++i) expected[i] -= added[i];
          Values after = expected;
          for (double& value : after) value = std::max(value, 0.0);
          kernels().product(
              {.shape = shape, .a = on_a, .b = on_b, .out = out, .bias = on_bias, .then = Product::Then::relu});
          check_close(out.get(), after, type);

          const OnDevice kept(type, m * n);
          std::transform(expected.begin(), expected.end(), after.begin(), gelu);
          kernels().product({.shape = shape,
                             .a = on_a,
                             .b = on_b,
                             .out = out,
                             .bias = on_bias,
                             .then = Product::Then::gelu,
                             .kept = kept});
          check_close(kept.get(), expected, type);
          check_close(out.get(), after, type);

          after = product_of(shape, a, b);
          const Values before = kept.get();
          for (std::size_t i = 0; i < m * n; ++i) after[i] *= gelu_slope(before[i]);
          kernels().product({.shape = shape,
                             .a = on_a,
                             .b = on_b,
                             .out = out,
                             .then = Product::Then::times_gelu_gradient,
                             .kept = kept});
          check_close(out.get(), after, type);
        }
}

TEST_CASE("a large product's algorithm may be faster than the first, but has its bits") {
  const Gemm shape{.m = 512, .n = 512, .k = 48};  // large enough for a comparison
  for (const DType type : kTypes) {
    const OnDevice a(type, noise(type, shape.m * shape.k, 3));
    const OnDevice b(type, noise(type, shape.k * shape.n, 4));
    const OnDevice zeros(type, Values(shape.m * shape.k));
    const OnDevice out(type, shape.m * shape.n);
    kernels().product({.shape = shape, .a = zeros, .b = b, .out = out});  // nothing that tells algorithms apart
    CHECK((out.get() == Values(shape.m * shape.n)));
    kernels().product({.shape = shape, .a = a, .b = b, .out = out, .added = out});  // cannot be run again
    const Values first = out.get();
    check_close(first, product_of(shape, noise(type, shape.m * shape.k, 3), noise(type, shape.k * shape.n, 4)), type);
    for (int again = 0; again < 3; ++again) {
      kernels().product({.shape = shape, .a = a, .b = b, .out = out});
      CHECK((out.get() == first));  // without the values, of which there are many
    }
  }
}

TEST_CASE("layer norm on a device, and its gradients") {
  for (const DType type : kTypes)
    // Rows that a warp holds in one, two and three packs a lane, that a block holds, and that none holds; and many
    // rows.
    for (const auto& [rows, cols] :
         {std::array{3U, 8U}, std::array{70U, 72U}, std::array{9U, 101U}, std::array{20U, 512U}, std::array{17U, 768U},
          std::array{9U, 1000U}, std::array{5U, 2304U}, std::array{2U, 4200U}, std::array{2600U, 24U}}) {
      const Values x = noise(type, rows * cols, 1, 2);
      const Values weight = noise(type, cols, 2);
      const Values bias = noise(type, cols, 3);
      const Values dy = noise(type, rows * cols, 4);
      const Values residual = noise(type, rows * cols, 5);
      Values y(rows * cols);
      Values dx(rows * cols);
      Values d_weight(cols);
      Values d_bias(cols);
      for (std::size_t r = 0; r < rows; ++r) {
        const double* const row = x.data() + r * cols;
        const double mean = std::accumulate(row, row + cols, 0.0) / cols;
        double squares = 0;
        for (std::size_t j = 0; j < cols; ++j) squares += (row[j] - mean) * (row[j] - mean);
        const double scale = 1 / std::sqrt(squares / cols + 1e-5);
        double sum_g = 0;
        double sum_gz = 0;
        for (std::size_t j = 0; j < cols; ++j) {
          const double z = (row[j] - mean) * scale;
          const double d = dy[r * cols + j];
          y[r * cols + j] = z * weight[j] + bias[j];
          d_weight[j] += d * z;
          d_bias[j] += d;
          sum_g += d * weight[j];
          sum_gz += d * weight[j] * z;
        }
        for (std::size_t j = 0; j < cols; ++j) {
          const double z = (row[j] - mean) * scale;
          dx[r * cols + j] = scale * (dy[r * cols + j] * weight[j] - sum_g / cols - z * sum_gz / cols);
        }
      }
      const Rows shape{rows, cols};
      const OnDevice on_x(type, x);
      const OnDevice on_weight(type, weight);
      const OnDevice on_bias(type, bias);
      const OnDevice on_dy(type, dy);
      const OnDevice on_residual(type, residual);
      const OnDevice saved(DType::f32, 2 * rows);
      const OnDevice out(type, rows * cols);
      TensorKernels& kernels = test::kernels();
      kernels.layer_norm(shape, on_x, on_weight, on_bias, saved.as<float>(), out);
      check_close(out.get(), y, type);
      const Values first = out.get();
      clear(Elements(out));
      kernels.layer_norm(shape, on_x, on_weight, on_bias, saved.as<float>(), out, true);
      CHECK(out.get() == first);

      for (const DType of_gradient : {type, DType::f32}) {
        const OnDevice on_d_weight(of_gradient, cols);
        const OnDevice on_d_bias(of_gradient, Values(cols, 0.5));
        kernels.layer_norm_backward(shape, on_x, on_weight, saved.as<float>(), on_dy, {}, out,
                                    {.weight = on_d_weight, .bias = on_d_bias, .weight_beta = 0, .bias_beta = 1});
        check_close(out.get(), dx, type);
        check_close(on_d_weight.get(), d_weight, type);
        Values more = d_bias;
        for (double& value : more) value += 0.5;
        check_close(on_d_bias.get(), more, type);
      }
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += residual[i];
      kernels.layer_norm_backward(shape, on_x, on_weight, saved.as<float>(), on_dy, on_residual, out, {});
      check_close(out.get(), dx, type);
    }
}

TEST_CASE("embedding on a device, and its tables' gradients") {
  constexpr std::size_t kBatch = 13;  // so that there are tokens of more rows than are read at once
  constexpr std::size_t kContext = 7;
  constexpr std::size_t kCols = 20;
  constexpr std::size_t kVocabulary = 11;
  constexpr std::size_t kRowsInAll = kBatch * kContext;
  std::vector<std::int32_t> ids(kRowsInAll);
  for (std::size_t r = 0; r < kRowsInAll; ++r) ids[r] = static_cast<std::int32_t>(r * r % kVocabulary);
  std::vector<std::int32_t> distinct;
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> rows;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(kVocabulary); ++id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) continue;
    distinct.push_back(id);
    begin.push_back(static_cast<std::int32_t>(rows.size()));
    for (std::size_t r = 0; r < kRowsInAll; ++r)
      if (ids[r] == id) rows.push_back(static_cast<std::int32_t>(r));
  }
  begin.push_back(static_cast<std::int32_t>(rows.size()));
  REQUIRE(distinct.size() < kVocabulary);

  const auto upload = [](const std::vector<std::int32_t>& values) {
    auto on = std::make_unique<OnDevice>(DType::f32, values.size());  // as many bytes
    device().copy_bytes(values.data(), on->as<void>(), values.size() * sizeof(std::int32_t));
    device().wait(device().mark());
    return on;
  };
  const auto on_ids = upload(ids);
  const auto on_distinct = upload(distinct);
  const auto on_begin = upload(begin);
  const auto on_rows = upload(rows);
  const auto on_count = upload({static_cast<std::int32_t>(distinct.size())});
  const TokenRows tokens{on_distinct->as<std::int32_t>(), on_begin->as<std::int32_t>(), on_rows->as<std::int32_t>(),
                         on_count->as<std::int32_t>()};
  for (const DType type : kTypes) {
    const Values table = noise(type, kVocabulary * kCols, 1);
    const Values places = noise(type, kContext * kCols, 2);
    const Values dy = noise(type, kRowsInAll * kCols, 3);
    Values y(kRowsInAll * kCols);
    Values d_table(table.size());
    Values d_places(places.size());
    for (std::size_t r = 0; r < kRowsInAll; ++r)
      for (std::size_t j = 0; j < kCols; ++j) {
        const std::size_t token = static_cast<std::size_t>(ids[r]) * kCols + j;
        const std::size_t place = r % kContext * kCols + j;
        y[r * kCols + j] = table[token] + places[place];
        d_table[token] += dy[r * kCols + j];
        d_places[place] += dy[r * kCols + j];
      }
    const OnDevice on_table(type, table);
    const OnDevice on_places(type, places);
    const OnDevice on_dy(type, dy);
    const OnDevice out(type, y.size());
    const Rows shape{kRowsInAll, kCols};
    kernels().embedding(shape, kContext, on_ids->as<std::int32_t>(), on_table, on_places, out);
    check_close(out.get(), y, type);
    const OnDevice on_d_table(type, Values(table.size(), 7));
    const OnDevice on_d_places(type, Values(places.size(), 0.25));
    kernels().embedding_backward(shape, kContext, tokens, on_dy, on_d_table, 0, on_d_places, 1);
    check_close(on_d_table.get(), d_table, type);
    for (double& value : d_places) value += 0.25;
    check_close(on_d_places.get(), d_places, type);
    kernels().embedding_backward(shape, kContext, tokens, on_dy, on_d_table, 1, on_d_places, 0);
    for (double& value : d_table) value *= 2;
    check_close(on_d_table.get(), d_table, type);
  }
}

TEST_CASE("biases' gradients, slopes, and GELU on a device") {
  for (const DType type : kTypes)
    for (const auto& [rows, cols] : {std::array{1U, 1U}, std::array{130U, 72U}, std::array{17U, 65U},
                                     std::array{1300U, 264U}, std::array{3U, 2304U}}) {
      const Values x = noise(type, rows * cols, 1);
      const Values dy = noise(type, rows * cols, 2);
      Values sums(cols);
      Values by_gelu(rows * cols);
      Values by_relu(rows * cols);
      Values after(rows * cols);
      for (std::size_t i = 0; i < rows * cols; ++i) {
        sums[i % cols] += dy[i];
        by_gelu[i] = dy[i] * gelu_slope(x[i]);
        by_relu[i] = x[i] <= 0 ? 0 : dy[i];
        after[i] = gelu(x[i]);
      }
      const OnDevice on_x(type, x);
      const OnDevice on_dy(type, dy);
      const OnDevice into(DType::f32, cols);
      TensorKernels& kernels = test::kernels();
      kernels.column_sums({rows, cols}, on_dy, 0, into);
      CHECK(difference(into.get(), sums) < 1e-5);
      const OnDevice out(type, rows * cols);
      kernels.slope(TensorKernels::Slope::gelu_of_input, on_x, on_dy, out);
      check_close(out.get(), by_gelu, type);
      kernels.slope(TensorKernels::Slope::relu_of_output, on_x, on_dy, out);
      CHECK(out.get() == by_relu);
      kernels.gelu(on_x, out);
      check_close(out.get(), after, type);
    }
}

TEST_CASE("losses on a device, whose gradients take the outputs' place") {
  for (const DType type : kTypes)
    for (const auto& [rows, cols] : {std::array{3U, 5U}, std::array{20U, 1000U}, std::array{7U, 513U},
                                     std::array{2U, 52'000U}}) {  // the last is too long for shared memory
      const Values y = noise(type, rows * cols, 1, 3);
      const double scale = 0.125;
      std::vector<std::int32_t> targets(rows);
      Values gradient(rows * cols);
      Values squares_gradient(rows * cols);
      double loss = 0;
      double squares = 0;
      std::uint64_t correct = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        const double* const row = y.data() + r * cols;
        const auto best = static_cast<std::size_t>(std::max_element(row, row + cols) - row);
        targets[r] = static_cast<std::int32_t>(r % 3 == 0 ? best : r % cols);
        const auto target = static_cast<std::size_t>(targets[r]);
        correct += best == target ? 1 : 0;
        double sum = 0;
        for (std::size_t j = 0; j < cols; ++j) sum += std::exp(row[j] - row[best]);
        loss += std::log(sum) + row[best] - row[target];
        for (std::size_t j = 0; j < cols; ++j) {
          gradient[r * cols + j] = scale * (std::exp(row[j] - row[best]) / sum - (j == target ? 1 : 0));
          squares += row[j] * row[j] / cols;
          squares_gradient[r * cols + j] = scale * 2 * row[j] / cols;
        }
      }
      const OnDevice on_targets(DType::f32, rows);
      device().copy_bytes(targets.data(), on_targets.as<void>(), rows * sizeof(std::int32_t));
      device().wait(device().mark());
      const OnDevice out(type, y);
      const OnDevice sums(DType::f32, sizeof(LossSums) / sizeof(float));
      const auto said = [&] {
        LossSums result;
        device().copy_bytes(sums.as<void>(), &result, sizeof(result));
        device().wait(device().mark());
        return result;
      };
      const Rows shape{rows, cols};
      kernels().loss(shape, on_targets.as<std::int32_t>(), 0, out, sums.as<LossSums>());
      CHECK(out.get() == y);
      kernels().loss(shape, on_targets.as<std::int32_t>(), static_cast<float>(scale), out, sums.as<LossSums>());
      CHECK(said().loss == Approx(loss).epsilon(1e-5));
      CHECK(said().correct == correct);
      check_close(out.get(), gradient, type);

      out.get();
      const OnDevice again(type, y);
      kernels().loss(shape, nullptr, static_cast<float>(scale), again, sums.as<LossSums>());
      CHECK(said().loss == Approx(squares).epsilon(1e-5));
      check_close(again.get(), squares_gradient, type);
    }
}

TEST_CASE("logits that overflowed downwards have no probability") {
  Values y(600, -INFINITY);
  y[0] = 0;
  y[3] = 1;
  y[500] = 2;
  const OnDevice out(DType::f16, y);
  const OnDevice targets(DType::f32, Values{0});  // the bits of class 0, too
  const OnDevice sums(DType::f32, sizeof(LossSums) / sizeof(float));
  kernels().loss({1, 600}, targets.as<std::int32_t>(), 1, out, sums.as<LossSums>());
  LossSums result;
  device().copy_bytes(sums.as<void>(), &result, sizeof(result));
  device().wait(device().mark());
  CHECK(result.loss == Approx(std::log(1 + std::exp(1.0) + std::exp(2.0))));
  CHECK(out.get()[1] == 0);
}

TEST_CASE("a loss that is not a number is said to be none") {
  Values y(40, 1.0);
  y[3] = std::nan("");
  const OnDevice out(DType::f32, y);
  const OnDevice targets(DType::f32, Values{0, 0});
  const OnDevice sums(DType::f32, sizeof(LossSums) / sizeof(float));
  kernels().loss({2, 20}, targets.as<std::int32_t>(), 1, out, sums.as<LossSums>());
  LossSums result;
  device().copy_bytes(sums.as<void>(), &result, sizeof(result));
  device().wait(device().mark());
  CHECK(std::isnan(result.loss));
}
