// The micro-batches of a step, and the actions of a pipeline's stage on them.
#include <psring/common/proc/job.h>
#include <psring/worker/trainer.h>

namespace psring::worker {

std::vector<Trainer::MicroBatch> Trainer::micro_batches(std::span<const std::uint32_t> samples, Step step,
                                                        std::size_t virtual_worker) const {
  const std::size_t micros = plan_.job.accumulate;  // some are empty if the batch is short
  std::vector<MicroBatch> batches;
  for (std::size_t m = 0; m < micros; ++m) {
    const std::size_t begin = m * samples.size() / micros;
    const std::size_t end = (m + 1) * samples.size() / micros;
    const Micro micro{m, m + 1 == micros, virtual_worker, virtual_worker + 1 == plan_.job.virtual_workers};
    batches.push_back({samples.subspan(begin, end - begin), begin, randomness(step, micro, begin), micro});
  }
  return batches;
}

/// The sampler gives worker r of n the positions r, r + n, ... of the global batch.
Randomness Trainer::randomness(Step step, const Micro& micro, std::size_t first) const {
  const std::size_t workers = plan_.workers * plan_.job.virtual_workers;
  return {.seed = plan_.job.seed,
          .step = step.index,
          .first = plan_.data_rank.value + micro.virtual_worker + first * workers,
          .stride = workers};
}

void Trainer::act(const StageAction& action, const MicroBatch& batch, float scale, Step step, LossResult& total) {
  using Kind = StageAction::Kind;
  switch (action.kind) {
    case Kind::receive_input:
      return parts_.links->receive_input(action.micro);
    case Kind::forward:
      return forward_pass(batch);
    case Kind::send_output:
      return parts_.links->send_output(action.micro);
    case Kind::receive_gradient:
      return parts_.links->receive_gradient(action.micro);
    case Kind::send_gradient:
      return parts_.links->send_gradient(action.micro);
    case Kind::backward:
      break;
  }
  const LossResult loss = backward_pass(batch, scale, step);
  total.loss_sum += loss.loss_sum;
  total.rows += loss.rows;
}

}  // namespace psring::worker
