#include <algorithm>

#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {
namespace {

/// One process, no exchange. With virtual workers it repeats the arithmetic of that many: their gradients one after the
/// other, added up in rank order, times 1/n. Micro-batches are added up before that, as workers with whole gradients
/// do (local), or after, as owners do.
class Single final : public Strategy {
 public:
  Single(const Context& context, const JobOptions& job)
      : context_(context),
        at_owner_(job.accumulate_at == "owner"),
        units_(context),
        optimizer_(context.optimizer, context.layout, context.memory, nullptr, context.device),
        ready_(context.layout) {
    const std::size_t micros = at_owner_ ? job.accumulate : 1;
    if (context.virtual_workers == 1 && micros == 1) return;
    sums_.resize(micros);
    for (auto& sums : sums_)
      for (UnitId unit = 0; unit < context.units.size(); ++unit)
        sums.push_back(context.buffer(context.layout.trained_elements(unit) * sizeof(float), Category::gradients));
  }

  bool adds_up() const override { return !at_owner_; }
  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }

  void start() override {
    units_.initialise(context_);
    optimizer_.start(context_);
  }
  void begin_step(Step step) override { step_ = step; }

  void grad_ready(UnitId unit, Micro micro) override {
    if (!micro.last && !at_owner_) return;
    if (!sums_.empty()) add_up(unit, micro);
    if (!micro.last || !micro.last_worker) return;
    ready_.add(unit);
    if (!optimizer_.whole_step()) optimizer_.update(unit, step_, mean(unit));
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    if (!optimizer_.whole_step()) return;
    std::vector<UnitBuffers> means;
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) means.push_back(mean(unit));
    optimizer_.update_all(step, means);
  }

  std::optional<std::vector<optim::StatePart>> state() override {
    return optimizer_.save(0, 1, [this](UnitId unit, Range) { return ConstElements(context_.units[unit].parameters); });
  }

  Prediction predict() const override {
    Prediction sum{0, 0, 0, 0};
    sum.worker_memory = worker_memory(context_, {});
    sum.worker_memory[Category::gradients] += sums_.size() * context_.layout.trained_elements() * sizeof(float);
    return sum;
  }

 private:
  UnitBuffers mean(UnitId unit) {
    UnitBuffers buffers = context_.units[unit];
    if (!sums_.empty()) buffers.gradients = sum(0, unit);
    return buffers;
  }

  Elements sum(std::size_t index, UnitId unit) { return sums_[index][unit].elements(DType::f32); }

  void add_up(UnitId unit, Micro micro) {
    const ConstElements mine = context_.units[unit].gradients;
    const std::size_t index = at_owner_ ? micro.index : 0;
    const Elements total = sum(index, unit);
    if (micro.virtual_worker == 0)
      convert(mine, total);
    else
      add(total, mine);
    if (!micro.last_worker) return;
    multiply(total, 1.0F / static_cast<float>(context_.virtual_workers));
    round_to(mine.type(), total);
    if (index == 0) return;
    const Elements first = sum(0, unit);
    add(first, total);
    round_to(mine.type(), first);
  }

  const Context context_;
  const bool at_owner_;
  WholeUnits units_;
  LocalOptimizer optimizer_;
  ReadyUnits ready_;
  std::vector<std::vector<Buffer>> sums_;  ///< in f32, by micro-batch where owners add them up, and unit
  Step step_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  return std::make_unique<Single>(context, job);
}

}  // namespace psring::worker
