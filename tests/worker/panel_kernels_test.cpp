// Products with weights of 32, 8 and 4 bits: each instruction set, number of rows and number of threads gives the bits
// of a plain loop.
#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/parallel.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/generate/packed_matrix.h>

using namespace psring;
using namespace psring::worker;

namespace {

std::vector<const PanelKernels*> all_kernels() {
  std::vector<const PanelKernels*> list{&panel_kernels()};
  if (slower_panel_kernels() != nullptr) list.push_back(slower_panel_kernels());
  return list;
}

std::vector<float> normals(std::size_t n, std::uint32_t tensor) {
  const CounterRng rng({.seed = 3, .tensor = tensor});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = rng.normal(i);
  return values;
}

/// A matrix with its weights in plain order.
struct Example {
  Example(std::size_t in, std::size_t out, const std::string& format)
      : matrix(in, out, WeightFormat::parse("--weights", format), memory), weights(normals(in * out, 1)) {
    for (std::size_t o = 0; o < out; ++o) matrix.set_column(o, column(o));
  }
  std::span<const float> column(std::size_t o) const {
    return std::span(weights).subspan(o * matrix.inputs(), matrix.inputs());
  }
  /// The product of one row and one output, in the order that the header promises.
  float product(const float* x, std::size_t o) const {
    const auto multiply_add = [](float a, float b, float c) { return std::fma(a, b, c); };
    if (matrix.format().kind == WeightFormat::Kind::f32) {
      float sum = 0;
      for (std::size_t k = 0; k < matrix.inputs(); ++k) sum = multiply_add(x[k], column(o)[k], sum);
      return sum;
    }
    if (matrix.format().kind == WeightFormat::Kind::int8) {
      float sum = 0;
      for (std::size_t k = 0; k < matrix.inputs(); ++k)
        sum = multiply_add(x[k], static_cast<float>(static_cast<std::int8_t>(matrix.quantised(k, o))), sum);
      return sum * matrix.scale(0, o);
    }
    float total = 0;
    const std::size_t group = matrix.format().group;
    for (std::size_t g = 0; g * group < matrix.inputs(); ++g) {
      float sum = 0;
      float inputs = 0;
      for (std::size_t k = g * group; k < std::min(matrix.inputs(), (g + 1) * group); ++k) {
        const float q = static_cast<float>(matrix.quantised(k, o));
        sum = multiply_add(x[k], matrix.format().affine ? q : q - 8, sum);
        inputs += x[k];
      }
      if (matrix.format().affine) sum = multiply_add(-static_cast<float>(matrix.zero(g, o)), inputs, sum);
      total = g == 0 ? sum * matrix.scale(g, o) : multiply_add(sum, matrix.scale(g, o), total);
    }
    return total;
  }

  MemoryLedger memory;
  PackedMatrix matrix;
  std::vector<float> weights;  ///< [out, in]
};

const char* const kFormats[] = {"f32",
                                "int8",
                                "int4:group=32",
                                "int4:group=64",
                                "int4:group=128",
                                "int4:group=64,scheme=affine",
                                "int4:group=32,scheme=affine"};

}  // namespace

TEST_CASE("products are bitwise identical to a plain loop") {
  for (const char* format : kFormats)
    for (const auto& [in, out] : {std::pair<std::size_t, std::size_t>{1, 1}, {70, 65}, {64, 64}, {130, 200}, {96, 3}}) {
      const Example example(in, out, format);
      for (const std::size_t rows : {1, 2, 3, 5, 6, 7, 13}) {
        const std::size_t stride = in + 3;
        const std::vector<float> x = normals(rows * stride, 2);
        for (const PanelKernels* kernels : all_kernels())
          for (const std::size_t threads : {1, 3}) {
            INFO(format << ", " << in << " x " << out << ", " << rows << " rows, " << kernels->name);
            Parallel team(threads);
            std::vector<float> y(rows * example.matrix.padded_outputs(), NAN);
            std::vector<float> sums(example.matrix.sums_floats(rows));
            example.matrix.multiply(rows, x.data(), stride, y.data(), sums, *kernels, team);
            bool same = true;
            for (std::size_t r = 0; r < rows; ++r)
              for (std::size_t o = 0; o < out; ++o)
                same = same && y[r * example.matrix.padded_outputs() + o] == example.product(x.data() + r * stride, o);
            CHECK(same);
          }
      }
    }
}

TEST_CASE("f32 products take any number of columns and any stride") {
  const std::size_t in = 37;
  const std::size_t stride = 150;
  const std::vector<float> w = normals(in * stride, 4);
  const std::vector<float> x = normals(7 * in, 5);
  for (const PanelKernels* kernels : all_kernels())
    for (const std::size_t columns : {1, 5, 8, 16, 17, 48, 64, 130}) {
      std::vector<float> y(7 * columns, NAN);
      kernels->f32({7, in, x.data(), in, y.data(), columns}, w.data(), stride, columns);
      bool same = true;
      for (std::size_t r = 0; r < 7; ++r)
        for (std::size_t c = 0; c < columns; ++c) {
          float sum = 0;
          for (std::size_t k = 0; k < in; ++k) sum = std::fma(x[r * in + k], w[k * stride + c], sum);
          same = same && y[r * columns + c] == sum;
        }
      INFO(kernels->name << ", " << columns << " columns");
      CHECK(same);
    }
}

TEST_CASE("quantised weights lie within half a step") {
  for (const char* format : kFormats) {
    const Example example(150, 70, format);
    std::vector<float> back(150);
    for (std::size_t o = 0; o < 70; ++o) {
      example.matrix.get_column(o, back);
      const auto kind = example.matrix.format().kind;
      for (std::size_t k = 0; k < back.size(); ++k) {
        const float error = std::abs(back[k] - example.column(o)[k]);
        if (kind == WeightFormat::Kind::f32) REQUIRE(error == 0);
        if (kind == WeightFormat::Kind::int8) REQUIRE(error <= 0.501F * example.matrix.scale(0, o));
        // A clipped weight may lie further out: ranges are cut to at least 0.7 of the largest weight.
        if (kind == WeightFormat::Kind::int4)
          REQUIRE(error <= 5.1F * example.matrix.scale(k / example.matrix.format().group, o));
      }
    }
  }
}

TEST_CASE("int4 errors are those of 16 values, and groups and zero points reduce them") {
  const auto error = [](const char* format, float shift) {
    MemoryLedger memory;
    PackedMatrix matrix(256, 1, WeightFormat::parse("--weights", format), memory);
    std::vector<float> weights = normals(256, 9);
    for (float& w : weights) w += shift;
    matrix.set_column(0, weights);
    std::vector<float> back(256);
    matrix.get_column(0, back);
    double sum = 0;
    for (std::size_t i = 0; i < 256; ++i) sum += std::pow(static_cast<double>(back[i] - weights[i]), 2);
    return std::sqrt(sum / 256);
  };
  CHECK(error("int8", 0) < 0.01);
  CHECK(error("int4:group=64", 0) < 0.12);  // a step of about 2.5 / 7, divided by sqrt(12)
  CHECK(error("int4:group=64", 0) > 0.05);
  CHECK(error("int4:group=32", 0) < error("int4:group=128", 0));
  CHECK(error("int4:group=64,scheme=affine", 0) < error("int4:group=64", 0) * 1.02);
  CHECK(error("int4:group=64,scheme=affine", 2) < 0.75 * error("int4:group=64", 2));
}

TEST_CASE("zeros and constants are exact in every format") {
  for (const char* format : kFormats) {
    MemoryLedger memory;
    PackedMatrix matrix(40, 2, WeightFormat::parse("--weights", format), memory);
    matrix.set_column(1, std::vector<float>(40, 0.0F));
    std::vector<float> back(40, 1.0F);
    matrix.get_column(1, back);
    CHECK(std::all_of(back.begin(), back.end(), [](float w) { return w == 0; }));
  }
}

TEST_CASE("a matrix books its bytes") {
  for (const char* format : kFormats) {
    MemoryLedger memory;
    const PackedMatrix matrix(200, 70, WeightFormat::parse("--weights", format), memory);
    CHECK(memory.current_bytes(Category::parameters) == matrix.size_bytes());
  }
  MemoryLedger memory;
  CHECK(PackedMatrix(128, 64, WeightFormat::parse("--weights", "f32"), memory).size_bytes() == 4 * 128 * 64);
  CHECK(PackedMatrix(128, 64, WeightFormat::parse("--weights", "int8"), memory).size_bytes() == 128 * 64 + 4 * 64);
  CHECK(PackedMatrix(128, 64, WeightFormat::parse("--weights", "int4"), memory).size_bytes() == 64 * 64 + 2 * 4 * 64);
  CHECK(PackedMatrix(128, 64, WeightFormat::parse("--weights", "int4:scheme=affine"), memory).size_bytes() ==
        64 * 64 + 2 * 5 * 64);
}

TEST_CASE("formats that are none are refused in one line") {
  for (const char* text :
       {"int2", "int8:group=64", "int4:group=48", "int4:group=0", "int4:group=256", "int4:scheme=odd", "f32:x=1", ""})
    CHECK_THROWS_AS(WeightFormat::parse("--weights", text), Error);
  for (const char* text : kFormats)
    CHECK(WeightFormat::parse("x", WeightFormat::parse("x", text).text()) == WeightFormat::parse("x", text));
}
