#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/optim/rules.h>
#include <psring/optim/updater.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;
using test::normal_values;

namespace {

/// Runs all phases except clipping, for an owner of the whole unit. A layerwise rule leaves its direction in
/// `gradient`. `out` may be `parameters` itself.
void update_unit(const Optimizer& optimizer, const Update& update, const UnitLayout& unit,
                 std::span<const float> parameters, std::span<float> gradient, Optimizer::State state,
                 std::span<float> out) {
  if (!optimizer.layerwise()) {
    optimizer.apply(update, parameters, gradient, state, out);
    return;
  }
  const Range whole{0, unit.elements};
  optimizer.apply(update, parameters, gradient, state, gradient);
  const std::vector<float> ratios = trust_ratios(layerwise_sums(unit.tensors, whole, parameters, gradient));
  scale_layerwise(update.lr, unit.tensors, whole, ratios, parameters, gradient, out);
}

/// Three tensors: of less than a block, of several blocks and a bit, of whole blocks. They are cut by some
/// owners' borders, and lie in one owner's range for others.
UnitLayout make_unit(std::size_t owners) {
  return make_layout({{"u", {{{"a", {100}, {}}}, {{"b", {3, 500}, {}}}, {{"c", {512}, {}}}}}}, owners).units[0];
}

/// Values in the tensors, zero in the padding.
std::vector<float> fill(const UnitLayout& unit, std::uint64_t seed) {
  std::vector<float> values(unit.elements);
  for (const TensorLayout& tensor : unit.tensors) {
    const std::vector<float> part = normal_values(tensor.spec.elements(), seed + tensor.offset);
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  return values;
}

/// Makes three clipped LAMB updates with `owners` owners, phase by phase, and returns the parameters.
std::vector<float> train(std::size_t owners) {
  const UnitLayout unit = make_unit(owners);
  const Partition partition(unit.elements, owners);
  const auto lamb = make_lamb({.eps = 1e-6, .weight_decay = 0.1});
  std::vector<float> w = fill(unit, 1);
  std::vector<float> m(w.size()), v(w.size()), next(w.size());
  for (std::uint64_t t = 1; t <= 3; ++t) {
    const std::vector<float> g = fill(unit, 1000 * t);
    const auto part = [&](auto& buffer, std::size_t owner) {
      const Range range = partition.range(owner);
      return std::span(buffer).subspan(range.begin, range.size());
    };
    ExactSum norm;
    for (std::size_t owner = owners; owner-- > 0;) {
      ExactSum own;
      add_square_sum(part(g, owner), own);
      norm.merge(own);
    }
    const Update update{.count = t, .lr = 0.1F, .gradient_scale = clip_scale(norm, 1.0)};
    std::vector<TensorSums> sums(unit.tensors.size());
    for (std::size_t owner = owners; owner-- > 0;) {
      lamb->apply(update, part(w, owner), part(g, owner), {{part(m, owner), part(v, owner)}}, part(next, owner));
      merge(sums, layerwise_sums(unit.tensors, partition.range(owner), part(w, owner), part(next, owner)));
    }
    const std::vector<float> ratios = trust_ratios(sums);
    for (std::size_t owner = 0; owner < owners; ++owner)
      scale_layerwise(update.lr, unit.tensors, partition.range(owner), ratios, part(w, owner), part(next, owner),
                      part(next, owner));
    std::swap(w, next);
  }
  return w;
}

}  // namespace

TEST_CASE("clipping follows clip_grad_norm_") {
  const std::vector<float> g = normal_values(3000, 1);
  double square = 0;
  for (const float x : g) square += double{x} * x;
  ExactSum sum;
  add_square_sum(g, sum);
  for (const double max_norm : {0.01, 1.0, 54.0, 1e6})
    CHECK(clip_scale(sum, max_norm) == Approx(std::min(1.0, max_norm / (std::sqrt(square) + 1e-6))));
  CHECK(clip_scale(sum, 1e6) == 1.0F);
  CHECK(clip_scale(ExactSum(), 1.0) == 1.0F);
  ExactSum tiny;
  tiny.add(1e-12);  // the 1e-6 of the formula shows
  CHECK(clip_scale(tiny, 1e-6) == Approx(0.5));
  ExactSum bad;
  bad.add(std::numeric_limits<double>::infinity());
  CHECK(std::isnan(clip_scale(bad, 1.0)));
  for (const double wrong : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THAT(error_of(ErrorKind::usage, [&] { clip_scale(sum, wrong); }), Contains("--clip-norm"));
}

TEST_CASE("LAMB over several owners is bitwise identical to LAMB with one") {
  const std::vector<float> one = train(1);
  for (const std::size_t owners : {2, 3, 5}) {
    std::vector<float> many = train(owners);
    REQUIRE(many.size() >= one.size());
    for (std::size_t i = one.size(); i < many.size(); ++i) CHECK(many[i] == 0);
    many.resize(one.size());
    CHECK(many == one);
  }
}

TEST_CASE("LAMB over a whole unit follows its formula") {
  const UnitLayout unit = make_unit(1);
  const double lr = 0.1;
  const double wd = 0.1;
  std::vector<float> w = fill(unit, 1);
  std::vector<float> m(w.size()), v(w.size());
  const auto lamb = make_lamb({.eps = 1e-6, .weight_decay = wd});
  std::vector<double> w_ref(w.begin(), w.end()), m_ref(w.size()), v_ref(w.size());
  for (int t = 1; t <= 50; ++t) {
    const std::vector<float> gradient = fill(unit, 1000 * t);
    std::vector<float> scratch = gradient;
    update_unit(*lamb, {.count = static_cast<std::uint64_t>(t), .lr = 0.1F}, unit, w, scratch, {{m, v}}, w);
    for (const TensorLayout& tensor : unit.tensors) {
      double w2 = 0;
      double r2 = 0;
      std::vector<double> r(tensor.spec.elements());
      for (std::size_t k = 0; k < r.size(); ++k) {
        const std::size_t i = tensor.offset + k;
        const double g = gradient[i];
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * g;
        v_ref[i] = 0.999 * v_ref[i] + 0.001 * g * g;
        r[k] =
            m_ref[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v_ref[i] / (1 - std::pow(0.999, t))) + 1e-6) + wd * w_ref[i];
        w2 += w_ref[i] * w_ref[i];
        r2 += r[k] * r[k];
      }
      for (std::size_t k = 0; k < r.size(); ++k) w_ref[tensor.offset + k] -= lr * std::sqrt(w2 / r2) * r[k];
    }
  }
  double worst = 0;
  for (std::size_t i = 0; i < w.size(); ++i)
    worst = std::max(worst, std::abs(w[i] - w_ref[i]) / std::max(1.0, std::abs(w_ref[i])));
  CHECK(worst < 1e-5);
  CHECK(std::vector<float>(w.begin() + 100, w.begin() + 256) == std::vector<float>(156));  // padding stays zero
}

TEST_CASE("a unit is updated the same in place and out of place, by every kind of rule") {
  const UnitLayout unit = make_unit(2);
  for (const auto& rule : {make_lamb({}), make_adam({})}) {
    const std::vector<float> start = fill(unit, 1);
    std::vector<float> in_place = start;
    std::vector<float> out(start.size());
    for (std::vector<float>* target : {&in_place, &out}) {
      std::vector<float> m(start.size()), v(start.size());
      std::vector<float> g = fill(unit, 2);
      const std::vector<float>& from = target == &in_place ? in_place : start;
      update_unit(*rule, {.count = 1, .lr = 0.1F}, unit, from, g, {{m, v}}, *target);
    }
    CHECK(in_place == out);
    CHECK(in_place != start);
  }
}

TEST_CASE("a tensor whose norm or direction is zero has the ratio 1, one that is not finite NaN") {
  std::vector<TensorSums> sums(4);
  sums[0].parameters.add(9);
  sums[1].direction.add(4);
  sums[2].parameters.add(9);
  sums[2].direction.add(4);
  sums[3].parameters.add(9);
  sums[3].direction.add(std::numeric_limits<double>::infinity());
  const std::vector<float> ratios = trust_ratios(sums);
  CHECK(ratios[0] == 1);
  CHECK(ratios[1] == 1);
  CHECK(ratios[2] == 1.5F);
  CHECK(std::isnan(ratios[3]));
}

TEST_CASE("each tensor is scaled by its own ratio, and padding is copied") {
  const UnitLayout unit = make_unit(5);  // padded behind the last tensor too
  const std::vector<float> w(unit.elements, 8.0F), r(unit.elements, 2.0F), ratios{1, 2, 4};
  std::vector<float> out(unit.elements, -1.0F), expected(unit.elements, 8.0F);
  for (std::size_t i = 0; i < unit.tensors.size(); ++i)
    for (std::size_t k = 0; k < unit.tensors[i].spec.elements(); ++k)
      expected[unit.tensors[i].offset + k] = 8.0F - 0.5F * ratios[i] * 2.0F;
  scale_layerwise(0.5F, unit.tensors, {0, unit.elements}, ratios, w, r, out);
  CHECK(out == expected);
}

TEST_CASE("owners that do not fit are found") {
  const UnitLayout unit = make_unit(1);
  std::vector<float> w(512), r(512), small(511);
  const std::vector<float> ratios(3, 1.0F);
  CHECK_THROWS_AS(layerwise_sums(unit.tensors, {128, 640}, w, r), Error);
  CHECK_THROWS_AS(layerwise_sums(unit.tensors, {256, 768}, w, small), Error);
  CHECK_THROWS_AS(scale_layerwise(1, unit.tensors, {256, 768}, ratios, w, r, small), Error);
  CHECK_THROWS_AS(scale_layerwise(1, unit.tensors, {256, 768}, std::vector<float>(2), w, r, w), Error);
  std::vector<TensorSums> sums(3);
  CHECK_THROWS_AS(merge(sums, std::vector<TensorSums>(2)), Error);
  CHECK(layerwise_sums(unit.tensors, {256, 256}, {}, {}).size() == 3);
}
