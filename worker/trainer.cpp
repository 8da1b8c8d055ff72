#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/job.h>
#include <psring/worker/trainer.h>

namespace psring::worker {

Trainer::Trainer(const Plan& plan, const World& world, Parts parts)
    : plan_(plan),
      world_(world),
      parts_(std::move(parts)),
      able_(parts_.strategy.abilities()),
      batch_(plan.job.batch_per_worker()),
      save_every_(plan.job.checkpoint_every),
      eval_every_(plan.job.eval_every),
      walk_(plan, world, parts_.flat, parts_.network, parts_.strategy, parts_.shared) {
  if (able_.tables != nullptr) rows_.emplace(plan, parts_.tables, *able_.tables, *parts_.data.train, parts_.sampler);
  if (!has_first_layer()) unused_input_.resize(parts_.input_cols);
}

std::uint64_t Trainer::run() {
  parts_.strategy.start();
  const std::uint64_t first = able_.pacing != nullptr ? able_.pacing->first().index : plan_.run_first_step;
  if (first > plan_.run_first_step) between_steps(first);
  const std::uint64_t batches = parts_.sampler.batches();
  std::uint64_t epoch = 0;
  std::uint64_t next = first;
  for (std::uint64_t index = first; index < plan_.steps && parts_.may_begin(index); index = next) {
    const Moment start = world_.clock.now();
    const Nanoseconds waited_before = waited();
    const Nanoseconds bubble_before = parts_.links != nullptr ? parts_.links->waited() : Nanoseconds{0};
    world_.events.begin_step(index);
    std::optional<Events::Span> span(std::in_place, world_.events, Activity{.name = "step"}, Events::Source::current());
    if (index / batches != epoch || index == first) {
      epoch = index / batches;
      parts_.sampler.begin_epoch(static_cast<std::uint32_t>(epoch));
    }
    if (parts_.scatter != nullptr) parts_.scatter->begin_step(parts_.sampler, index % batches);
    const Step step{index};
    parts_.begins(index);
    parts_.pace.begin_step(index);
    parts_.strategy.begin_step(step);
    LossResult total;
    std::size_t samples = 0;
    for (std::size_t v = 0; v < plan_.job.virtual_workers; ++v) {
      const auto batch = parts_.sampler.batch(plan_.data_rank.value + v, index % batches);
      const LossResult loss = step_of_worker(batch, step, v);
      total.loss_sum += loss.loss_sum;
      total.rows += loss.rows;
      samples += batch.size();
    }
    parts_.strategy.finish_step(step);
    next = able_.pacing != nullptr ? std::min(able_.pacing->after(step).index, plan_.steps) : index + 1;
    const double loss = total.rows == 0 ? 0 : total.loss_sum / static_cast<double>(total.rows);
    const Nanoseconds duration = world_.clock.now() - start;
    if (!reports_loss()) samples = 0;
    world_.events.report(
        StepReport{.step = index,
                   .epoch = epoch,
                   .loss = loss,
                   .samples = samples,
                   .duration = duration,
                   .exposed = waited() - waited_before,
                   .staleness = able_.pacing != nullptr ? able_.pacing->staleness() : 0,
                   .own = reports_loss() ? call_back(index, epoch, loss, samples) : std::vector<OwnFigure>(),
                   .bubble = parts_.links != nullptr ? parts_.links->waited() - bubble_before : Nanoseconds{0}});
    span.reset();  // evaluations and checkpoints are activities of their own
    world_.events.end_step();
    const auto passes = [&](std::uint64_t every) { return every != 0 && next / every != index / every; };
    if (passes(eval_every_)) evaluate(multiples_of(eval_every_, index, std::min(next, plan_.steps - 1)), next);
    if (passes(save_every_) || (save_every_ != 0 && next == plan_.steps)) save(next);
  }
  if (able_.pacing != nullptr) able_.pacing->leave();
  parts_.strategy.quiesce();
  if (parts_.scatter != nullptr) parts_.scatter->finish();
  if (parts_.links != nullptr) parts_.links->finish();
  if (next >= plan_.steps) {
    evaluate({plan_.steps}, plan_.steps);
    if (parts_.links != nullptr) parts_.links->finish();  // accounts for the evaluation
  } else if (save_every_ != 0 && next > plan_.run_first_step && next % save_every_ != 0) {
    save(next);
  }
  return next;
}

LossResult Trainer::step_of_worker(std::span<const std::uint32_t> samples, Step step, std::size_t virtual_worker) {
  // The scale is the same at all workers, so that the mean of the gradients over n workers is the mean over all
  // samples, even if some workers have fewer of them.
  const std::size_t index = step.index % parts_.sampler.batches();
  const double mean_rows = parts_.sampler.mean_batch_size(index) * static_cast<double>(parts_.rows_per_sample);
  const float scale = 1.0F / static_cast<float>(mean_rows);
  const std::vector<MicroBatch> batches = micro_batches(samples, step, virtual_worker);
  if (rows_) rows_->begin_step(samples, step, virtual_worker);
  walk_.begin_gradients();
  if (parts_.links != nullptr) {
    std::vector<std::size_t> sizes;
    for (const MicroBatch& batch : batches) sizes.push_back(batch.samples.size());
    parts_.links->begin_step(std::move(sizes));
  }
  LossResult total;
  for (const StageAction& action : parts_.actions) act(action, batches[action.micro], scale, step, total);
  if (parts_.links == nullptr) return total;
  parts_.links->end_step();
  parts_.shared->sum();
  walk_.hand_over_shared(batches.back().micro);
  return total;
}

void Trainer::forward_pass(const MicroBatch& batch) {
  if (parts_.links != nullptr && !batch.samples.empty()) parts_.links->select(batch.micro.index, batch.randomness);
  if (batch.samples.empty() || parts_.pace.stands_in()) return pass_without_computing(Pass::forward, batch);
  load(parts_.scatter != nullptr ? *parts_.scatter : *parts_.data.train, batch.samples, batch.first, batch.randomness);
  forward(batch.micro.virtual_worker == 0 ? BufferUse::update : BufferUse::leave);
}

LossResult Trainer::backward_pass(const MicroBatch& batch, float scale, Step step) {
  if (rows_) rows_->look_ahead();
  const optim::LossScaler scaler = able_.loss_scaler();
  skips_.look(step.index, scaler);
  if (parts_.links != nullptr && !batch.samples.empty()) parts_.links->select(batch.micro.index, batch.randomness);
  if (batch.samples.empty() || parts_.pace.stands_in()) {
    pass_without_computing(Pass::backward, batch);
    if (batch.samples.empty()) return {};
    return {.loss_sum = std::numeric_limits<double>::quiet_NaN(), .rows = batch.samples.size(), .correct = 0};
  }
  if (!has_loss()) {
    backward(batch.micro);
    return {};
  }
  // A loss that is known at once is checked before gradients leave; a device's is not waited for.
  const std::optional<LossResult> known =
      call_extension([] { return "the model's loss"; }, [&] { return parts_.network.loss(scale * scaler.scale()); });
  if (known && !std::isfinite(known->loss_sum)) fail_not_finite(step, plan_, world_, parts_.flat, parts_.network);
  backward(batch.micro);
  if (known) return *known;
  const LossResult loss = parts_.network.loss_after();
  if (!std::isfinite(loss.loss_sum)) fail_not_finite(step, plan_, world_, parts_.flat, parts_.network);
  return loss;
}

Nanoseconds Trainer::waited() const {
  Nanoseconds waited = able_.waited();
  if (parts_.scatter != nullptr) waited += parts_.scatter->waited();
  if (parts_.links != nullptr) waited += parts_.links->waited() + parts_.shared->waited();
  return waited + parts_.tensor.waited();
}

void Trainer::load(const Dataset& data, std::span<const std::uint32_t> samples, std::size_t first,
                   const Randomness& randomness) {
  const Events::Span span(world_.events, {.name = "load"});
  parts_.network.begin(samples.size(), randomness);
  if (rows_) rows_->show({first, first + samples.size()}, parts_.network);
  if (!has_first_layer() && !has_loss()) return;
  const auto input_of = [&](std::size_t i) -> std::span<float> {
    if (!has_first_layer()) return unused_input_;
    const Matrix input = parts_.network.input();
    return {input.row(i), input.cols};
  };
  const std::span<std::int32_t> targets = parts_.network.targets();
  const std::size_t each = data.targets_per_sample();
  const std::span<float> values = parts_.network.target_values().span();
  const std::size_t values_each = data.target_values();
  std::size_t i = 0;
  call_extension([&] { return fmt::format("the data set, reading sample {},", samples[i]); },
                 [&] {
                   for (; i < samples.size(); ++i)
                     data.read(samples[i], {input_of(i), targets.subspan(i * each, each),
                                            values.subspan(i * values_each, values_each)});
                 });
}

void Trainer::forward(BufferUse use) {
  walk_.go(Pass::forward, {}, [&](std::size_t layer) {
    const bool training = use != BufferUse::read;
    const auto buffers = use == BufferUse::leave ? LayerBuffers::List() : parts_.buffers.of(layer);
    const auto compute = [&] { walk_.forward_layer(layer, "forward", training, buffers); };
    training ? parts_.pace.pass(compute) : compute();
  });
}

/// With activation checkpointing, layers whose activations were dropped go forward again first.
void Trainer::backward(Micro micro) {
  walk_.go(Pass::backward, micro, [&](std::size_t layer) {
    const Range again = parts_.network.to_recompute(layer);
    for (std::size_t each = again.begin; each < again.end; ++each) walk_.forward_layer(each, "forward again", true, {});
    parts_.pace.pass([&] { walk_.backward_layer(layer); });
  });
}

/// The other workers wait for the hooks, and get gradients of zero. With samples, the pass takes the time of --compute.
void Trainer::pass_without_computing(Pass pass, const MicroBatch& batch) {
  walk_.go(pass, batch.micro, [&](std::size_t /*layer*/) {
    if (!batch.samples.empty()) parts_.pace.pass([] {});
  });
}

}  // namespace psring::worker
