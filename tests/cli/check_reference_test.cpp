// The references of exercises 13 and 14: their gradients against finite differences of their losses.
#include <catch2/catch.hpp>

#include <psring/cli/check/references.h>

using namespace psring;
using namespace psring::cli;

namespace {

constexpr double kStep = 1e-6;

/// Compares a gradient with central differences of `loss`, which reads `values`.
template <class Loss>
void check_gradient(Values& values, const Values& gradient, const Loss& loss) {
  REQUIRE((gradient.rows() == values.rows() && gradient.cols() == values.cols()));
  for (Eigen::Index i = 0; i < values.size(); ++i) {
    double& each = values.data()[i];
    const double value = each;
    each = value + kStep;
    const double above = loss();
    each = value - kStep;
    const double below = loss();
    each = value;
    CHECK(gradient.data()[i] == Approx((above - below) / (2 * kStep)).margin(1e-6));
  }
}

}  // namespace

TEST_CASE("the pair of layers has the gradients of y times dy") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Pair pair = random_pair(3, 5, 8, 4, seed);
    const PairResult result = run_whole(pair);
    const auto loss = [&] { return run_whole(pair).y.cwiseProduct(pair.dy).sum(); };
    check_gradient(pair.x, result.dx, loss);
    check_gradient(pair.a, result.da, loss);
    check_gradient(pair.b, result.db, loss);
    check_gradient(pair.c, result.dc, loss);
  }
}

TEST_CASE("the parts of a pair add up to the whole, or are its columns and rows") {
  const Pair pair = random_pair(3, 5, 8, 4, 4);
  const PairResult whole = run_whole(pair);
  for (const std::size_t ranks : {1, 2, 3, 5}) {
    Values y = pair.c.replicate(whole.y.rows(), 1);
    Values dx = Values::Zero(whole.dx.rows(), whole.dx.cols());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Range columns{rank * 8 / ranks, (rank + 1) * 8 / ranks};
      const PairResult part = run_part(pair, columns);
      y += part.y;
      dx += part.dx;
      CHECK(part.da.isApprox(columns_of(whole.da, columns), 1e-14));
      CHECK(part.dc == whole.dc);
      CHECK(part.db.isApprox(rows_of(whole.db, columns), 1e-14));
    }
    CHECK(y.isApprox(whole.y));
    CHECK(dx.isApprox(whole.dx));
  }
}

TEST_CASE("a stage has the gradients of the loss through all later stages") {
  constexpr std::size_t kStages = 3;
  constexpr std::size_t kMicroBatches = 2;
  const PipelineReference reference = run_pipeline(kStages, kMicroBatches);
  for (std::size_t m = 0; m < kMicroBatches; ++m)
    for (std::size_t stage = 0; stage < kStages; ++stage) {
      Values parameters = stage_parameters(stage);
      Values input = reference.inputs[stage][m];
      const auto loss_from = [&](Values values, std::size_t first) {
        for (std::size_t later = first; later < kStages; ++later)
          values = stage_forward(stage_parameters(later), values);
        return stage_loss(m, values);
      };
      const auto loss = [&] { return loss_from(stage_forward(parameters, input), stage + 1); };
      check_gradient(parameters, reference.gradients[stage][m], loss);
      const StageGradients gradients = stage_backward(parameters, input, reference.activation_gradients[stage][m]);
      check_gradient(input, gradients.input, loss);
      if (stage > 0) CHECK(gradients.input == reference.activation_gradients[stage - 1][m]);
    }
}
