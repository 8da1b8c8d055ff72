#include <algorithm>
#include <utility>

#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/whole_parameters.h>

namespace psring::worker {
namespace {

class GatheredParameters final : public Parameters {
 public:
  GatheredParameters(const Plan& plan, const World& world, Workers& workers, std::vector<Range> calls)
      : plan_(plan),
        world_(world),
        workers_(workers),
        ownership_(plan.layout, workers.owners().rank()),
        calls_([&] {
          std::sort(calls.begin(), calls.end());
          return std::move(calls);
        }()),
        parameters_(plan, world, WholeUnits::Values::parameters) {}

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void updated() override;
  void quiesce() override;
  Elements owned(UnitId unit) override { return ownership_.of(unit, world_.units[unit].parameters); }
  void predict(Prediction& sum) const override;

 private:
  struct Gather {
    Range units;
    ring::Work work;
  };

  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  const Ownership ownership_;
  const std::vector<Range> calls_;  ///< in forward order: the first units are needed first
  WholeUnits parameters_;
  std::vector<Gather> gathers_;
};

void GatheredParameters::start() {
  if (plan_.data_rank.value == 0) initialise_whole(plan_, world_);
  workers_.broadcast(parameters_.all());
}

void GatheredParameters::acquire(UnitId unit, Pass pass) {
  if (pass != Pass::forward || !plan_.layout.units[unit].trained) return;
  for (Gather& gather : gathers_)
    if (gather.units.contains({unit, unit + 1})) workers_.wait(gather.work);
}

void GatheredParameters::updated() {
  gathers_.clear();
  for (const Range units : calls_) {
    const auto topic = workers_.about(units);
    gathers_.push_back(
        {units, workers_.owners().all_gather(parameters_.trained(units), owners_of(plan_.layout, units))});
  }
}

void GatheredParameters::quiesce() {
  for (Gather& gather : gathers_) workers_.wait(gather.work);
}

void GatheredParameters::predict(Prediction& sum) const {
  for (const Range units : calls_)
    add_call(workers_.owners().predict(ring::Collective::all_gather, trained_elements(plan_.layout, units),
                                       {plan_.layout.parameter_type}, owners_of(plan_.layout, units)),
             sum);
  sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
}

}  // namespace

std::unique_ptr<Parameters> make_gathered_parameters(const Plan& plan, const World& world, Workers& workers,
                                                     std::vector<Range> calls) {
  return std::make_unique<GatheredParameters>(plan, world, workers, std::move(calls));
}

}  // namespace psring::worker
