#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/mesh/tensor_sums.h>
#include <psring/worker/model/graph.h>

namespace psring::worker {
namespace {

void add(ring::Moved& sum, const ring::Moved& more, std::uint64_t times = 1) {
  sum.sent += times * more.sent;
  sum.received += times * more.received;
}

}  // namespace

const PredictedTensorSums::Costs& PredictedTensorSums::costs(std::size_t samples) {
  const auto [known, is_new] = known_.try_emplace(samples);
  Costs& costs = known->second;
  if (!is_new) return costs;
  const auto of = [&](std::size_t count, DType type) -> ring::Moved {
    if (count == 0) return {};
    return group_.predict(ring::Collective::all_reduce, count, {type});
  };
  const std::vector<Shape> shapes = activation_shapes(model_, samples);
  for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
    const Wanted wanted = network_.wanted[layer];
    const LayerSums sums = model_.layers[layer]->tensor_sums(shapes[sources_of(model_, layer).front()], wanted);
    costs.forward.push_back(of(sums.forward, DType::f32));
    costs.backward.push_back(of(wanted.dx || wanted.gradients ? sums.backward : 0, DType::f32));
  }
  if (model_.loss == nullptr) return costs;
  const LossExchange loss = model_.loss->tensor_sums(samples * model_.rows_per_sample);
  add(costs.loss, of(loss.largest_f32, DType::f32));
  add(costs.loss, of(loss.sum_f64, DType::f64));
  return costs;
}

/// Follows Network::to_recompute: a range whose activations were dropped runs forward again.
void PredictedTensorSums::add_backward(const Costs& costs, std::size_t& held, ring::Moved& sum) const {
  add(sum, costs.loss);
  for (std::size_t layer = model_.layers.size(); layer-- > first_trained_;) {
    for (const Range range : network_.recomputed) {
      if (!range.contains({layer, layer + 1}) || range.contains({held, held + 1})) continue;
      for (std::size_t again = range.begin; again < range.end; ++again) add(sum, costs.forward[again]);
      held = range.end - 1;
    }
    add(sum, costs.backward[layer]);
  }
}

ring::Moved PredictedTensorSums::step(std::span<const std::size_t> samples) {
  ring::Moved sum;
  std::size_t held = model_.layers.size();  // the layer that ran forward last
  std::size_t slot = 0;                     // of the micro-batch whose activations are in the network
  for (const StageAction& action : actions_) {
    const std::size_t count = samples[action.micro];
    const bool forward = action.kind == StageAction::Kind::forward;
    if (count == 0 || (!forward && action.kind != StageAction::Kind::backward)) continue;
    if (action.micro % network_.in_flight != slot) held = model_.layers.size();
    slot = action.micro % network_.in_flight;
    if (!forward) {
      add_backward(costs(count), held, sum);
      continue;
    }
    for (const ring::Moved& cost : costs(count).forward) add(sum, cost);
    held = model_.layers.size() - 1;
  }
  return sum;
}

void predict_tensor_sums(PredictedTensorSums& sums, const RunOfWorker& run, Prediction& prediction) {
  const std::size_t batches = run.sampler.batches();
  const auto passes = [&](std::size_t index, std::uint64_t step) {
    return step / batches + (index < step % batches ? 1 : 0);
  };
  std::vector<ring::Moved> steps;
  for (std::size_t index = 0; index < batches; ++index) {
    const std::size_t samples = run.sampler.batch_size(run.data_rank, index);
    std::vector<std::size_t> micros;
    for (std::size_t m = 0; m < run.micros; ++m)
      micros.push_back((m + 1) * samples / run.micros - m * samples / run.micros);
    steps.push_back(sums.step(micros));
  }
  // Every step moves at least the bytes of the cheapest step.
  ring::Moved least = steps.front();
  for (const ring::Moved& step : steps)
    least = {std::min(least.sent, step.sent), std::min(least.received, step.received)};
  if (prediction.worker_sends) *prediction.worker_sends += least.sent;
  if (prediction.worker_receives) *prediction.worker_receives += least.received;
  ring::Moved rest;
  for (std::size_t index = 0; index < batches; ++index)
    add(rest, {steps[index].sent - least.sent, steps[index].received - least.received},
        passes(index, run.steps) - passes(index, run.first));
  prediction.larger_batches_send += rest.sent;
  prediction.run_sends += rest.sent;
  prediction.run_receives += rest.received;
}

}  // namespace psring::worker
