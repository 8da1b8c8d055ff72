#include <cmath>
#include <utility>

#include <psring/cli/check/references.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

Eigen::Index index(std::size_t number) { return static_cast<Eigen::Index>(number); }

/// The targets of a micro-batch.
Values targets(std::size_t micro_batch) { return random_values(kStageSamples, kStageWidth, 143, micro_batch); }

}  // namespace

Values random_values(Eigen::Index rows, Eigen::Index columns, std::uint64_t seed, std::size_t number) {
  const CounterRng random({.seed = seed, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(number)});
  Values values(rows, columns);
  for (Eigen::Index i = 0; i < values.size(); ++i)
    values.data()[i] = 2 * random.uniform(static_cast<std::uint64_t>(i)) - 1;
  return values;
}

std::vector<float> floats(const Values& values) { return {values.data(), values.data() + values.size()}; }

Values like(const Values& shape, std::span<const float> values) {
  return Eigen::Map<const Floats>(values.data(), shape.rows(), shape.cols()).cast<double>();
}

bool all_near(std::span<const float> values, const Values& expected, double tolerance) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - expected.data()[i]) <= tolerance)) return false;
  return true;
}

Pair random_pair(std::size_t batch, std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint64_t seed) {
  return {.x = random_values(index(batch), index(inputs), seed, 0),
          .a = random_values(index(inputs), index(hidden), seed, 1),
          .b = random_values(index(hidden), index(outputs), seed, 2),
          .c = random_values(1, index(outputs), seed, 3),
          .dy = random_values(index(batch), index(outputs), seed, 4)};
}

PairResult run_part(const Pair& pair, Range columns, bool relu) {
  const Values a = columns_of(pair.a, columns);
  const Values b = rows_of(pair.b, columns);
  PairResult result;
  result.hidden = pair.x * a;
  Values gradient = pair.dy * b.transpose();
  if (relu) {
    gradient = (result.hidden.array() > 0).select(gradient, 0);
    result.hidden = result.hidden.cwiseMax(0);
  }
  result.y = result.hidden * b;
  result.dx = gradient * a.transpose();
  result.da = pair.x.transpose() * gradient;
  result.db = result.hidden.transpose() * pair.dy;
  result.dc = pair.dy.colwise().sum();
  return result;
}

PairResult run_whole(const Pair& pair, bool relu) {
  PairResult result = run_part(pair, {0, static_cast<std::size_t>(pair.a.cols())}, relu);
  result.y.rowwise() += pair.c.row(0);
  return result;
}

Values columns_of(const Values& matrix, Range columns) {
  return matrix.middleCols(index(columns.begin), index(columns.size()));
}

Values rows_of(const Values& matrix, Range rows) { return matrix.middleRows(index(rows.begin), index(rows.size())); }

Values stage_parameters(std::size_t stage) { return random_values(kStageWidth + 1, kStageWidth, 141, stage); }

Values stage_samples(std::size_t micro_batch) { return random_values(kStageSamples, kStageWidth, 142, micro_batch); }

Values stage_forward(const Values& parameters, const Values& input) {
  Values sums = input * parameters.topRows(kStageWidth);
  sums.rowwise() += parameters.row(kStageWidth);
  return sums.array().tanh();
}

double stage_loss(std::size_t micro_batch, const Values& activation) {
  return (activation - targets(micro_batch)).squaredNorm() / 2 / kStageSamples;
}

Values stage_loss_gradient(std::size_t micro_batch, const Values& activation) {
  return (activation - targets(micro_batch)) / kStageSamples;
}

StageGradients stage_backward(const Values& parameters, const Values& input, const Values& activation_gradient) {
  const Values activation = stage_forward(parameters, input);
  const Values before = activation_gradient.array() * (1 - activation.array().square());
  Values gradients(kStageWidth + 1, kStageWidth);
  gradients << input.transpose() * before, before.colwise().sum();
  return {before * parameters.topRows(kStageWidth).transpose(), std::move(gradients)};
}

PipelineReference run_pipeline(std::size_t stages, std::size_t micro_batches) {
  PipelineReference reference;
  for (auto* const values : {&reference.inputs, &reference.activation_gradients, &reference.gradients})
    values->assign(stages, std::vector<Values>(micro_batches));
  for (std::size_t m = 0; m < micro_batches; ++m) {
    Values values = stage_samples(m);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      reference.inputs[stage][m] = values;
      values = stage_forward(stage_parameters(stage), values);
    }
    values = stage_loss_gradient(m, values);
    for (std::size_t stage = stages; stage-- > 0;) {
      reference.activation_gradients[stage][m] = values;
      StageGradients gradients = stage_backward(stage_parameters(stage), reference.inputs[stage][m], values);
      reference.gradients[stage][m] = std::move(gradients.parameters);
      values = std::move(gradients.input);
    }
  }
  return reference;
}

}  // namespace psring::cli
