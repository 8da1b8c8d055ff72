#include <algorithm>

#include <psring/common/base/spec.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {
namespace {

/// One process, no exchange. With virtual workers it repeats the arithmetic of that many: their
/// gradients one after the other, added up in rank order, times 1/n.
class Single final : public Strategy {
 public:
  explicit Single(const Context& context)
      : context_(context),
        units_(context),
        optimizer_(context.optimizer, context.layout, context.memory),
        ready_(context.layout) {
    if (context.virtual_workers == 1) return;
    for (const UnitLayout& unit : context.layout.units)
      sums_.emplace_back(unit.elements * sizeof(float), Category::gradients, context.memory);
  }

  void start() override { units_.initialise(context_); }
  void begin_step(Step step) override { step_ = step; }

  void grad_ready(UnitId unit, Micro micro) override {
    if (!micro.last) return;
    if (context_.virtual_workers > 1) add_up(unit, micro);
    if (micro.last_worker) ready_.add(unit);
    if (micro.last_worker && !optimizer_.whole_step()) optimizer_.update(unit, step_, mean(unit));
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    if (!optimizer_.whole_step()) return;
    std::vector<UnitBuffers> means;
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) means.push_back(mean(unit));
    optimizer_.update_all(step, means);
  }

  Prediction predict() const override { return {0, 0, 0, 0}; }

 private:
  UnitBuffers mean(UnitId unit) {
    UnitBuffers buffers = context_.units[unit];
    if (context_.virtual_workers > 1) buffers.gradients = sums_[unit].as<float>();
    return buffers;
  }

  void add_up(UnitId unit, Micro micro) {
    const std::span<const float> mine = context_.units[unit].gradients;
    const std::span<float> sum = sums_[unit].as<float>();
    if (micro.virtual_worker == 0) {
      std::copy(mine.begin(), mine.end(), sum.begin());
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
    }
    if (!micro.last_worker) return;
    const float scale = 1.0F / static_cast<float>(context_.virtual_workers);
    for (float& value : sum) value *= scale;
  }

  const Context context_;
  WholeUnits units_;
  LocalOptimizer optimizer_;
  ReadyUnits ready_;
  std::vector<Buffer> sums_;
  Step step_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const Spec& spec, const Context& context) {
  spec.allow_only({});
  return std::make_unique<Single>(context);
}

}  // namespace psring::worker
