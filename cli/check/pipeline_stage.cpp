#include <algorithm>
#include <cmath>
#include <limits>

#include <psring/cli/check/pipeline_stage.h>
#include <psring/common/base/error.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 1e-5;

std::vector<float> floats(const StageValues& values) { return {values.begin(), values.end()}; }
StageValues doubles(std::span<const float> values) { return {values.begin(), values.end()}; }

/// Whether the values are `factor` times those expected.
template <class Expected>
bool all_near(std::span<const float> values, const Expected& expected, double factor = 1) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - factor * expected[i]) <= kTolerance)) return false;
  return true;
}

}  // namespace

SimulatedStage::SimulatedStage(PipelineRun& run, RankSide& side)
    : run_(run),
      side_(side),
      link_(side, run.sizes, "stage"),
      micro_batches_(run.micro_batches),
      micro_gradients_(kStageParameters, std::numeric_limits<float>::quiet_NaN()),
      gradients_(kStageParameters) {}

std::span<float> SimulatedStage::input(std::size_t micro_batch) {
  MicroBatch& entry = find("input", micro_batch);
  if (entry.state == State::ran_backward)
    fail(ErrorKind::usage, "input({}): backward of micro-batch {} has freed it", micro_batch, micro_batch);
  if (entry.state == State::unknown) {
    entry.state = State::has_input;
    entry.input = stage() == 0 ? floats(stage_samples(micro_batch))
                               : std::vector<float>(kStageValues, std::numeric_limits<float>::quiet_NaN());
    side_.memory.book(Category::activations, kStageValues * sizeof(float));
    if (++kept_ > most_kept_) {
      most_kept_ = kept_;
      passes_at_most_ = passes_;
    }
  }
  return entry.input;
}

std::span<const float> SimulatedStage::forward(std::size_t micro_batch) {
  MicroBatch& entry = find("forward", micro_batch);
  if (entry.state == State::unknown && stage() == 0) input(micro_batch);
  if (entry.state == State::unknown)
    fail(ErrorKind::usage, "forward({}): receive the activation of micro-batch {} into input({}) first", micro_batch,
         micro_batch, micro_batch);
  if (entry.state != State::has_input)
    fail(ErrorKind::usage, "forward({}): micro-batch {} has run forward already", micro_batch, micro_batch);
  inspect('F', micro_batch, entry.input, run_.reference.inputs[stage()], {});
  const Events::Span span(side_.events, {.name = "forward", .unit = static_cast<std::uint32_t>(stage())});
  side_.compute(kForwardTime);
  entry.state = State::ran_forward;
  entry.activation = floats(stage_forward(stage_parameters(stage()), doubles(entry.input)));
  add_pass('F', micro_batch);
  return entry.activation;
}

std::span<const float> SimulatedStage::loss_gradient(std::size_t micro_batch) {
  MicroBatch& entry = find("loss_gradient", micro_batch);
  if (stage() + 1 != stages())
    fail(ErrorKind::usage, "loss_gradient({}): the last stage, {}, has the loss; stage {} receives its gradient",
         micro_batch, stages() - 1, stage());
  if (entry.state != State::ran_forward)
    fail(ErrorKind::usage, "loss_gradient({}): call it between forward({}) and backward({})", micro_batch, micro_batch,
         micro_batch);
  loss_gradient_ = floats(stage_loss_gradient(micro_batch, doubles(entry.activation)));
  return loss_gradient_;
}

std::span<const float> SimulatedStage::backward(std::size_t micro_batch, std::span<const float> activation_gradient) {
  MicroBatch& entry = find("backward", micro_batch);
  if (entry.state == State::ran_backward)
    fail(ErrorKind::usage, "backward({}): micro-batch {} has run backward already", micro_batch, micro_batch);
  if (entry.state != State::ran_forward)
    fail(ErrorKind::usage, "backward({}): micro-batch {} has not run forward", micro_batch, micro_batch);
  if (activation_gradient.size() != kStageValues)
    fail(ErrorKind::usage, "backward({}): the gradient has {} values, the activation {}", micro_batch,
         activation_gradient.size(), kStageValues);
  inspect('B', micro_batch, activation_gradient, run_.reference.activation_gradients[stage()], entry.activation);
  const StageGradients gradients =
      stage_backward(stage_parameters(stage()), doubles(entry.input), doubles(activation_gradient));
  const Events::Span span(side_.events, {.name = "backward", .unit = static_cast<std::uint32_t>(stage())});
  side_.compute(kBackwardTime);
  input_gradient_ = floats(gradients.input);
  micro_gradients_ = floats(gradients.parameters);
  entry.state = State::ran_backward;
  // NaN, so that a pointer into the freed input shows.
  std::fill(entry.input.begin(), entry.input.end(), std::numeric_limits<float>::quiet_NaN());
  side_.memory.release(Category::activations, kStageValues * sizeof(float));
  --kept_;
  add_pass('B', micro_batch);
  return input_gradient_;
}

void SimulatedStage::recv(std::size_t from, std::span<float> values) {
  link_.recv(from, values, passes_.empty() ? " before its first pass" : " after " + passes_);
}

std::vector<std::size_t> SimulatedStage::unfinished() const {
  std::vector<std::size_t> numbers;
  for (std::size_t m = 0; m < micro_batches_.size(); ++m)
    if (micro_batches_[m].state != State::ran_backward) numbers.push_back(m);
  return numbers;
}

SimulatedStage::MicroBatch& SimulatedStage::find(const char* call, std::size_t micro_batch) {
  if (micro_batch >= micro_batches_.size())
    fail(ErrorKind::usage, "{}({}): there are micro-batches 0 to {}", call, micro_batch, micro_batches_.size() - 1);
  return micro_batches_[micro_batch];
}

void SimulatedStage::add_pass(char kind, std::size_t micro_batch) {
  passes_ += fmt::format("{}{}{}", passes_.empty() ? "" : " ", kind, micro_batch);
}

void SimulatedStage::inspect(char kind, std::size_t micro_batch, std::span<const float> values,
                             const std::vector<StageValues>& expected, std::span<const float> activation) {
  if (!run_.mistake.empty() || all_near(values, expected[micro_batch])) return;
  // A loss may also be divided by the number of micro-batches where it is calculated; then all gradients are.
  const double share = 1 / static_cast<double>(run_.micro_batches);
  if (kind == 'B' && all_near(values, expected[micro_batch], share)) return;
  const auto is_nan = [](float value) { return std::isnan(value); };
  std::string cause;
  for (std::size_t other = 0; other < expected.size(); ++other)
    if (cause.empty() && all_near(values, expected[other]))
      cause = say(run_.language, Text{"it is that of micro-batch {}", "它属于微批 {}"}, other);
  if (std::any_of(values.begin(), values.end(), is_nan))
    cause = say(run_.language, Text{"it was not received", "还没有接收"});
  else if (std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }))
    cause = say(run_.language, Text{"it is zero: was it received?", "它是零：接收了吗？"});
  else if (!activation.empty() && all_near(values, activation))
    cause = say(run_.language, Text{"it is the activation itself", "它是激活值本身"});
  if (cause.empty())
    cause = say(run_.language, Text{"its first value is {:.5g}, not {:.5g}", "它的第一个值是 {:.5g}，应为 {:.5g}"},
                values[0], expected[micro_batch][0]);
  const Text text = kind == 'F'
                        ? Text{"stage {}, forward of micro-batch {}: the input is wrong: {}",
                               "阶段 {} 对微批 {} 做前向：输入不对：{}"}
                        : Text{"stage {}, backward of micro-batch {}: the gradient of the activation is wrong: {}",
                               "阶段 {} 对微批 {} 做反向：激活值的梯度不对：{}"};
  run_.mistake = say(run_.language, text, stage(), micro_batch, cause);
}

}  // namespace psring::cli
