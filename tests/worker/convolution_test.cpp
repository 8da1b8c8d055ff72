#include <array>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/device/cpu_convolutions.h>
#include <psring/common/device/kernels.h>
#include <psring/worker/model/check_gradients.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/layers/convolution.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;

namespace {

std::vector<float> noise(std::size_t n, std::uint32_t stream) {
  const CounterRng rng({.seed = 5, .tensor = stream});
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = rng.normal(i);
  return values;
}

/// Loops in f64.
struct Naive {
  std::vector<double> y, dx, dw, db;

  Naive(const Convolution& c, const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& b,
        const std::vector<float>& dy)
      : y(c.batch * c.out * c.pixels()), dx(x.size()), dw(w.size()), db(c.out) {
    const auto margin = static_cast<std::ptrdiff_t>(c.kernel / 2);
    for (std::size_t n = 0; n < c.batch; ++n)
      for (std::size_t o = 0; o < c.out; ++o)
        for (std::size_t row = 0; row < c.height; ++row)
          for (std::size_t col = 0; col < c.width; ++col) {
            const std::size_t at = ((n * c.out + o) * c.height + row) * c.width + col;
            y[at] += static_cast<double>(b[o]);
            db[o] += static_cast<double>(dy[at]);
            for (std::size_t i = 0; i < c.in; ++i)
              for (std::size_t ky = 0; ky < c.kernel; ++ky)
                for (std::size_t kx = 0; kx < c.kernel; ++kx) {
                  const std::ptrdiff_t from_row = static_cast<std::ptrdiff_t>(row + ky) - margin;
                  const std::ptrdiff_t from_col = static_cast<std::ptrdiff_t>(col + kx) - margin;
                  if (from_row < 0 || from_col < 0 || from_row >= static_cast<std::ptrdiff_t>(c.height) ||
                      from_col >= static_cast<std::ptrdiff_t>(c.width))
                    continue;
                  const std::size_t from = ((n * c.in + i) * c.height + static_cast<std::size_t>(from_row)) * c.width +
                                           static_cast<std::size_t>(from_col);
                  const std::size_t weight = ((o * c.in + i) * c.kernel + ky) * c.kernel + kx;
                  y[at] += static_cast<double>(x[from]) * static_cast<double>(w[weight]);
                  dx[from] += static_cast<double>(dy[at]) * static_cast<double>(w[weight]);
                  dw[weight] += static_cast<double>(dy[at]) * static_cast<double>(x[from]);
                }
          }
  }
};

double error(const std::vector<float>& values, const std::vector<double>& expected, double factor = 1,
             double offset = 0) {
  double difference = 0;
  double norm = 1e-30;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double e = factor * expected[i] + offset;
    difference += (static_cast<double>(values[i]) - e) * (static_cast<double>(values[i]) - e);
    norm += e * e;
  }
  return std::sqrt(difference / norm);
}

const std::vector<Convolution> kShapes{
    {.batch = 4, .in = 1, .out = 16, .height = 28, .width = 28, .kernel = 3},
    {.batch = 3, .in = 16, .out = 32, .height = 14, .width = 14, .kernel = 3},
    {.batch = 2, .in = 7, .out = 5, .height = 9, .width = 6, .kernel = 5},
    {.batch = 1, .in = 1, .out = 1, .height = 1, .width = 1, .kernel = 1},
    {.batch = 2, .in = 3, .out = 2, .height = 2, .width = 3, .kernel = 7},
    {.batch = 1, .in = 17, .out = 33, .height = 5, .width = 4, .kernel = 1},
};

}  // namespace

TEST_CASE("convolutions agree with plain loops, as oneDNN's and as matrix products") {
  for (const Convolution& c : kShapes)
    for (const bool products : {false, true}) {
      INFO(c.batch << " " << c.in << " " << c.out << " " << c.height << "x" << c.width << " k" << c.kernel);
      const auto x = noise(c.batch * c.in * c.pixels(), 1);
      const auto w = noise(c.weights(), 2);
      const auto b = noise(c.out, 3);
      const auto dy = noise(c.batch * c.out * c.pixels(), 4);
      const Naive naive(c, x, w, b, dy);
      const auto kernels = make_cpu_kernels();
      std::vector<float> scratch(convolution_scratch(c), NAN);
      std::vector<float> y(dy.size(), NAN);
      std::vector<float> dx(x.size(), NAN);
      std::vector<float> dw(w.size(), NAN);
      std::vector<float> db(b.size(), NAN);
      if (products) {
        convolve_by_products(*kernels, c, x.data(), w.data(), b.data(), y.data(), scratch);
        convolve_input_by_products(*kernels, c, dy.data(), w.data(), dx.data(), scratch);
        convolve_weights_by_products(*kernels, c, x.data(), dy.data(), 0, dw.data(), 0, db.data(), scratch);
      } else {
        kernels->convolve(c, x.data(), w.data(), b.data(), Kernels::Activation::none, y.data(), scratch);
        kernels->convolve_backward_input(c, dy.data(), w.data(), dx.data(), scratch);
        kernels->convolve_backward_weights(c, x.data(), dy.data(), 0, dw.data(), 0, db.data(), scratch);
      }
      CHECK(error(y, naive.y) < 1e-6);
      CHECK(error(dx, naive.dx) < 1e-6);
      CHECK(error(dw, naive.dw) < 1e-5);  // sums of batch x pixels terms, of which many cancel
      CHECK(error(db, naive.db) < 1e-5);
      if (products)
        convolve_weights_by_products(*kernels, c, x.data(), dy.data(), 1, dw.data(), 1, db.data(), scratch);
      else
        kernels->convolve_backward_weights(c, x.data(), dy.data(), 1, dw.data(), 1, db.data(), scratch);
      CHECK(error(dw, naive.dw, 2) < 1e-5);
      CHECK(error(db, naive.db, 2) < 1e-5);
    }
}

TEST_CASE("oneDNN computes the usual shapes within the formula's scratch, and refuses too little of it") {
  CpuConvolutions fast;
  for (std::size_t i = 0; i < 2; ++i) {
    const Convolution& c = kShapes[i];
    const auto x = noise(c.batch * c.in * c.pixels(), 1);
    const auto w = noise(c.weights(), 2);
    const auto b = noise(c.out, 3);
    std::vector<float> y(c.batch * c.out * c.pixels());
    std::vector<float> scratch(convolution_scratch(c));
    if (!fast.forward(c, x.data(), w.data(), b.data(), y.data(), scratch)) {
      WARN("oneDNN has no kernel of its own on this processor");
      continue;
    }
    CHECK_FALSE(fast.forward(c, x.data(), w.data(), b.data(), y.data(), std::span(scratch).first(16)));
  }
}

TEST_CASE("the layers of a convolutional net agree with finite differences") {
  const ImageShape image{3, 5, 6};
  for (const auto activation : {Conv2d::Activation::none, Conv2d::Activation::relu}) {
    const Conv2d layer("c", image, {.out = 4, .kernel = 3, .activation = activation});
    CHECK(check_gradients(layer, Shape{2, image.elements()}).relative_error < 2e-3);
  }
  const MaxPool pool(image, 2);
  CHECK(pool.image().height == 2);
  CHECK(pool.image().width == 3);
  CHECK(check_gradients(pool, Shape{2, image.elements()}, {.epsilon = 1e-3}).relative_error < 2e-3);
}

TEST_CASE("pooling passes NaN on") {
  const ImageShape image{1, 2, 2};
  const MaxPool pool(image, 2);
  const auto kernels = make_cpu_kernels();
  const std::vector<float> x{1, NAN, 3, 2};
  std::vector<float> y(1);
  pool.forward({*kernels, {}, {x.data(), 1, 4}, {y.data(), 1, 1}, {}, {}, {}});
  CHECK(std::isnan(y[0]));
}

TEST_CASE("a convolutional net's layers, units and operations") {
  const Model model = make_conv_net(Spec::parse("--model", "conv:1x28x28-16c3-p2-32c3-r3-p2-d0.2-128-10"));
  CHECK(model.input_cols == 784);
  CHECK(model.classes == 10);
  REQUIRE(model.layers.size() == 10);
  const FlatModel flat(model, group_layers(model, "block"));
  REQUIRE(flat.units() == 5);
  CHECK(flat.name(0) == "convs.0");
  CHECK(flat.name(4) == "layers.1");
  CHECK(model.layers[0]->flops({2, 784}, {.dx = false}) == 2 * 2.0 * 2 * 784 * 16 * 9);
  CHECK(flat.tensors(3)[0].spec.shape == std::vector<std::size_t>{128, 32 * 49});
}

TEST_CASE("wrong texts of convolutional nets are refused, and the word is named") {
  const auto refusal = [](const std::string& text) {
    try {
      make_conv_net(Spec::parse("--model", text));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK_THAT(refusal("conv:28x28-10"), Contains("'28x28'"));
  CHECK_THAT(refusal("conv"), Contains("CHANNELSxHEIGHTxWIDTH"));
  CHECK_THAT(refusal("conv:1x28x28"), Contains("layers after"));
  CHECK_THAT(refusal("conv:1x28x28-16c4-10"), Contains("odd kernel"));
  CHECK_THAT(refusal("conv:1x28x28-16c3"), Contains("classes at the end"));
  CHECK_THAT(refusal("conv:1x28x28-p29-10"), Contains("fits into the image"));
  CHECK_THAT(refusal("conv:1x28x28-10-16c3-10"), Contains("after the first linear layer"));
  CHECK_THAT(refusal("conv:1x28x28-q2-10"), Contains("'q2'"));
  CHECK_THAT(refusal("conv:1x28x28-d2-10"), Contains("below 1"));
  CHECK_THAT(refusal("conv:1x28x28-16c3-d0.5"), Contains("classes at the end"));
  CHECK_THAT(refusal("conv:0x28x28-10"), Contains("'0x28x28'"));
}
