#include <algorithm>
#include <utility>

#include <psring/cli/check/pair_reference.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

std::vector<double> random_values(std::size_t count, std::uint64_t seed, std::uint16_t matrix) {
  const CounterRng random({.seed = seed, .purpose = Purpose::test, .rank = matrix});
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2 * random.uniform(i) - 1;
  return values;
}

}  // namespace

Pair random_pair(std::size_t batch, std::size_t inputs, std::size_t hidden, std::size_t outputs, std::uint64_t seed) {
  return {.batch = batch,
          .inputs = inputs,
          .hidden = hidden,
          .outputs = outputs,
          .x = random_values(batch * inputs, seed, 0),
          .a = random_values(inputs * hidden, seed, 1),
          .b = random_values(hidden * outputs, seed, 2),
          .c = random_values(outputs, seed, 3),
          .dy = random_values(batch * outputs, seed, 4)};
}

PairResult run_part(const Pair& pair, Range columns, bool relu) {
  const std::size_t width = columns.size();
  PairResult result{.hidden = std::vector<double>(pair.batch * width),
                    .y = std::vector<double>(pair.batch * pair.outputs),
                    .dx = std::vector<double>(pair.batch * pair.inputs),
                    .da = std::vector<double>(pair.inputs * width),
                    .db = std::vector<double>(width * pair.outputs),
                    .dc = std::vector<double>(pair.outputs)};
  for (std::size_t n = 0; n < pair.batch; ++n) {
    for (std::size_t o = 0; o < pair.outputs; ++o) result.dc[o] += pair.dy[n * pair.outputs + o];
    for (std::size_t h = 0; h < width; ++h) {
      const std::size_t column = columns.begin + h;
      double before = 0;
      for (std::size_t i = 0; i < pair.inputs; ++i)
        before += pair.x[n * pair.inputs + i] * pair.a[i * pair.hidden + column];
      const double after = relu ? std::max(before, 0.0) : before;
      result.hidden[n * width + h] = after;
      double gradient = 0;
      for (std::size_t o = 0; o < pair.outputs; ++o) {
        result.y[n * pair.outputs + o] += after * pair.b[column * pair.outputs + o];
        result.db[h * pair.outputs + o] += after * pair.dy[n * pair.outputs + o];
        gradient += pair.dy[n * pair.outputs + o] * pair.b[column * pair.outputs + o];
      }
      if (relu && before <= 0) continue;
      for (std::size_t i = 0; i < pair.inputs; ++i) {
        result.da[i * width + h] += pair.x[n * pair.inputs + i] * gradient;
        result.dx[n * pair.inputs + i] += gradient * pair.a[i * pair.hidden + column];
      }
    }
  }
  return result;
}

PairResult run_whole(const Pair& pair, bool relu) {
  PairResult result = run_part(pair, {0, pair.hidden}, relu);
  for (std::size_t i = 0; i < result.y.size(); ++i) result.y[i] += pair.c[i % pair.outputs];
  return result;
}

std::vector<double> columns_of(const std::vector<double>& matrix, std::size_t columns, Range range) {
  std::vector<double> part;
  for (std::size_t row = 0; row < matrix.size() / columns; ++row)
    part.insert(part.end(), matrix.begin() + static_cast<std::ptrdiff_t>(row * columns + range.begin),
                matrix.begin() + static_cast<std::ptrdiff_t>(row * columns + range.end));
  return part;
}

}  // namespace psring::cli
