#include <psring/worker/exchange/servers/servers.h>
#include <psring/worker/exchange/whole_units.h>

namespace psring::worker {
namespace {

class PulledParameters final : public Parameters {
 public:
  PulledParameters(const Plan& plan, const World& world, Servers& servers)
      : plan_(plan), world_(world), servers_(servers), parameters_(plan, world, WholeUnits::Values::parameters) {}

  void start() override {
    servers_.open();
    refresh();
  }
  void acquire(UnitId unit, Pass pass) override {
    if (pass == Pass::forward) wait(unit);
  }
  void quiesce() override {
    for (UnitId unit = 0; unit < world_.units.size(); ++unit) wait(unit);
  }
  void refresh() override {
    for (UnitId unit = 0; unit < world_.units.size(); ++unit)
      servers_.link().pull(unit, servers_.version_of(unit), world_.units[unit].parameters, true);
  }
  Elements owned(UnitId /*unit*/) override { return {}; }
  void predict(Prediction& sum) const override {
    servers_.predict_pulls(plan_.layout.trained(), plan_.layout.parameter_type, sum);  // updates change no frozen unit
    sum.worker_memory[Category::parameters] += parameters_.all().size_bytes();
    if (world_.stages()) sum.worker_memory[Category::staging] += parameters_.all().size_bytes();
  }

 private:
  void wait(UnitId unit) { servers_.link().wait(unit, servers_.version_of(unit)); }

  const Plan& plan_;
  const World& world_;
  Servers& servers_;
  WholeUnits parameters_;
};

}  // namespace

std::unique_ptr<Parameters> make_pulled_parameters(const Plan& plan, const World& world, Servers& servers) {
  return std::make_unique<PulledParameters>(plan, world, servers);
}

}  // namespace psring::worker
