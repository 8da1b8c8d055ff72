// The references of exercises 13 and 14: their gradients against finite differences of their losses.
#include <catch2/catch.hpp>

#include <psring/cli/check/pair_reference.h>
#include <psring/cli/check/stage_model.h>

using namespace psring;
using namespace psring::cli;

namespace {

constexpr double kStep = 1e-6;

/// Compares a gradient with central differences of `loss`, which reads `values`.
template <class Loss>
void check_gradient(std::vector<double>& values, const std::vector<double>& gradient, const Loss& loss) {
  REQUIRE(gradient.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + kStep;
    const double above = loss();
    values[i] = value - kStep;
    const double below = loss();
    values[i] = value;
    CHECK(gradient[i] == Approx((above - below) / (2 * kStep)).margin(1e-6));
  }
}

}  // namespace

TEST_CASE("the pair of layers has the gradients of y times dy") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Pair pair = random_pair(3, 5, 8, 4, seed);
    const PairResult result = run_whole(pair);
    const auto loss = [&] {
      const PairResult now = run_whole(pair);
      double sum = 0;
      for (std::size_t i = 0; i < now.y.size(); ++i) sum += now.y[i] * pair.dy[i];
      return sum;
    };
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
    std::vector<double> y(whole.y.size());
    std::vector<double> dx(whole.dx.size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Range columns{rank * pair.hidden / ranks, (rank + 1) * pair.hidden / ranks};
      const PairResult part = run_part(pair, columns);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += part.y[i];
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += part.dx[i];
      CHECK(part.da == columns_of(whole.da, pair.hidden, columns));
      CHECK(part.dc == whole.dc);
      CHECK(part.db == std::vector<double>(whole.db.begin() + static_cast<std::ptrdiff_t>(columns.begin * pair.outputs),
                                           whole.db.begin() + static_cast<std::ptrdiff_t>(columns.end * pair.outputs)));
    }
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i] + pair.c[i % pair.outputs] == Approx(whole.y[i]));
    for (std::size_t i = 0; i < dx.size(); ++i) CHECK(dx[i] == Approx(whole.dx[i]));
  }
}

TEST_CASE("a stage has the gradients of the loss through all later stages") {
  constexpr std::size_t kStages = 3;
  constexpr std::size_t kMicroBatches = 2;
  const PipelineReference reference = run_pipeline(kStages, kMicroBatches);
  for (std::size_t m = 0; m < kMicroBatches; ++m)
    for (std::size_t stage = 0; stage < kStages; ++stage) {
      StageValues parameters = stage_parameters(stage);
      StageValues input = reference.inputs[stage][m];
      const auto loss_from = [&](StageValues values, std::size_t first) {
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
