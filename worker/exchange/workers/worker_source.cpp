#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {
namespace {

class WorkerSource final : public UnitSource {
 public:
  WorkerSource(const Plan& plan, const World& world, Workers& workers)
      : plan_(plan),
        workers_(workers),
        ownership_(plan.layout, workers.owners().rank()),
        gathers_(plan.layout.units.size()) {
    for (UnitId unit = 0; unit < plan.layout.units.size(); ++unit)
      owned_.push_back(
          world.buffer(plan.layout.parameter_bytes(unit) / plan.layout.owners, Category::parameters, nullptr));
  }

  void start() override {
    for (UnitId unit = 0; unit < owned_.size(); ++unit) plan_.initialise(unit, ownership_.range(unit), owned(unit));
    workers_.broadcast({});
  }

  void fetch(UnitId unit, Elements whole, bool in_step) override {
    copy(owned(unit), ownership_.of(unit, whole));
    gathers_[unit].clear();
    const auto topic = workers_.about({unit, unit + 1});
    if (in_step) {
      gathers_[unit].push_back(workers_.owners().all_gather(whole, parts(unit)));
      return;
    }
    const Partition partition = plan_.layout.partition(unit);
    for (std::size_t owner = 0; owner < partition.owners(); ++owner)  // broadcasts count as control
      gathers_[unit].push_back(workers_.owners().broadcast(whole.part(partition.range(owner)), owner));
  }
  void wait(UnitId unit) override {
    for (ring::Work& work : gathers_[unit]) workers_.wait(work);
  }
  Elements owned(UnitId unit) override { return owned_[unit].elements(plan_.layout.parameter_type); }

  void predict(std::span<const UnitId> fetched, Prediction& sum) const override {
    for (const UnitId unit : fetched)
      add_call(workers_.owners().predict(ring::Collective::all_gather, plan_.layout.units[unit].elements,
                                         {plan_.layout.parameter_type}, parts(unit)),
               sum);
    sum.worker_memory[Category::parameters] += plan_.layout.parameter_bytes() / plan_.layout.owners;
  }

 private:
  /// The range of each owner, as the layout's partition cuts the unit.
  ring::Parts parts(UnitId unit) const {
    return ring::even_parts(plan_.layout.units[unit].elements, plan_.layout.owners);
  }

  const Plan& plan_;
  Workers& workers_;
  const Ownership ownership_;
  std::vector<Buffer> owned_;                     ///< by unit
  std::vector<std::vector<ring::Work>> gathers_;  ///< by unit: the newest fetch
};

}  // namespace

std::unique_ptr<UnitSource> make_worker_source(const Plan& plan, const World& world, Workers& workers) {
  return std::make_unique<WorkerSource>(plan, world, workers);
}

}  // namespace psring::worker
