// The trainer's work between two steps: evaluation, checkpoints, and the program's callbacks.
#include <algorithm>

#include <psring/common/base/system/extension.h>
#include <psring/common/proc/job.h>
#include <psring/worker/exchange/mesh/mesh_groups.h>
#include <psring/worker/trainer.h>

namespace psring::worker {
namespace {

/// While it exists, the sums of a tensor group count as control traffic: an evaluation is no part of a step.
class SumsOfEvaluation {
 public:
  explicit SumsOfEvaluation(const MeshGroups* mesh) : group_(mesh == nullptr ? nullptr : mesh->tensor.get()) {
    if (group_ != nullptr) group_->count_as_control(true);
  }
  ~SumsOfEvaluation() {
    if (group_ != nullptr) group_->count_as_control(false);
  }
  SumsOfEvaluation(const SumsOfEvaluation&) = delete;
  SumsOfEvaluation& operator=(const SumsOfEvaluation&) = delete;

 private:
  ring::ProcessGroup* const group_;
};

}  // namespace

std::vector<std::uint64_t> Trainer::multiples_of(std::uint64_t every, std::uint64_t after, std::uint64_t last) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t multiple = (after / every + 1) * every; multiple <= last; multiple += every)
    all.push_back(multiple);
  return all;
}

/// Evaluates and saves if that was due before the step: the processes may have ended before they did.
void Trainer::between_steps(std::uint64_t step) {
  const auto due = [&](std::uint64_t every) { return every != 0 && step % every == 0; };
  if (due(eval_every_) && step < plan_.steps) evaluate({step}, step);
  if (due(save_every_) || (save_every_ != 0 && step == plan_.steps)) save(step);
}

/// Evaluates once for all of the steps: a late worker goes from one update to a later one, and has the values of the
/// later one alone.
void Trainer::evaluate(const std::vector<std::uint64_t>& steps, std::uint64_t next) {
  if (steps.empty() || parts_.data.test == nullptr || parts_.pace.stands_in()) return;
  const Events::Span span(world_.events, {.name = "evaluate"});
  parts_.strategy.quiesce();
  const SumsOfEvaluation counted(world_.mesh);
  const bool ranks = std::ranges::any_of(parts_.metrics, [](const Metric& metric) { return metric.of_all != nullptr; });
  const bool alone =
      ranks || (!parts_.buffers.empty() && !(able_.exchanging != nullptr && able_.exchanging->shares_buffers()));
  if (alone && plan_.data_rank.value != 0) return;  // only worker 0's buffers count, or it ranks all outputs
  const std::size_t workers = alone ? 1 : plan_.workers;
  const std::size_t count = evaluation_count(parts_.data.test->size(), plan_.data_rank.value, workers);
  Evaluation result;
  for (const Metric& metric : parts_.metrics) result.own.push_back({metric.name, 0});
  std::vector<std::uint32_t> samples;
  std::vector<float> outputs;  // of all samples, if a metric ranks them
  std::vector<std::int32_t> classes;
  std::vector<float> values;
  const std::size_t chunk =
      (batch_ + plan_.job.accumulate - 1) / plan_.job.accumulate;  // the samples that the network has room for
  const std::size_t most = evaluation_count(parts_.data.test->size(), 0, workers);
  evaluation_cut_ = false;
  for (std::size_t begin = 0; begin < most; begin += chunk) {
    if (!parts_.evaluation.may_begin(next, begin / chunk)) {
      evaluation_cut_ = true;
      return;
    }
    parts_.evaluation.goes_on(static_cast<double>(begin) / static_cast<double>(most));
    if (begin >= count) {
      walk_.go(Pass::forward, {}, [](std::size_t /*layer*/) {});  // other workers wait for the hooks
      continue;
    }
    samples.resize(std::min(chunk, count - begin));
    for (std::size_t i = 0; i < samples.size(); ++i)
      samples[i] = static_cast<std::uint32_t>(evaluation_sample(begin + i, plan_.data_rank.value, workers));
    if (parts_.links != nullptr) parts_.links->receive_evaluated(samples.size());
    if (rows_) rows_->read(*parts_.data.test, samples, Step{next});
    load(*parts_.data.test, samples, 0, {});
    forward(BufferUse::read);
    if (ranks) {
      const std::size_t before = outputs.size();
      outputs.resize(before + samples.size());
      const OnHost y(parts_.network.output_of(parts_.network.layers() - 1));
      convert(y.values(), Elements(std::span(outputs).subspan(before)));
      const auto targets = parts_.network.targets();
      classes.insert(classes.end(), targets.begin(), targets.end());
      const std::span<const float> wanted = parts_.network.target_values().span();
      values.insert(values.end(), wanted.begin(), wanted.end());
    }
    if (parts_.links != nullptr) parts_.links->send_evaluated();
    if (!has_loss()) continue;
    const LossResult loss =
        call_extension([] { return "the model's loss"; }, [&] { return parts_.network.evaluate(); });
    result.loss_sum += loss.loss_sum;
    result.rows += loss.rows;
    result.correct += loss.correct;
    for (std::size_t i = 0; i < loss.metrics.size(); ++i) result.own[i].value += loss.metrics[i];
  }
  const Targets all(classes, {values.data(), values.size(), 1});
  for (std::size_t i = 0; i < parts_.metrics.size(); ++i)
    if (parts_.metrics[i].of_all)
      result.own[i].value = parts_.metrics[i].of_all(outputs, all) * static_cast<double>(result.rows);
  if (!reports_loss()) return;
  for (const std::uint64_t step : steps) {
    result.step = step;
    world_.events.report(result);
  }
}

/// A job that continues after a loss may reach a saved step again.
void Trainer::save(std::uint64_t step) {
  const Events::Span span(world_.events, {.name = "save"});
  parts_.strategy.quiesce();
  if (!parts_.is_saved(step)) parts_.save(step);
}

std::vector<OwnFigure> Trainer::call_back(std::uint64_t step, std::uint64_t epoch, double loss,
                                          std::size_t samples) const {
  StepContext context(plan_.data_rank.value, step, epoch, loss, samples);
  for (const StepCallback& callback : parts_.callbacks)
    call_extension([&] { return fmt::format("the callback of step {}", step); }, [&] { callback(context); });
  return context.take_figures();
}

}  // namespace psring::worker
