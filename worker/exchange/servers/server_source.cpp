#include <psring/worker/exchange/fetched_parameters.h>
#include <psring/worker/exchange/servers/servers.h>

namespace psring::worker {
namespace {

class ServerSource final : public UnitSource {
 public:
  ServerSource(const Plan& plan, const World& world, Servers& servers)
      : plan_(plan), world_(world), servers_(servers) {}

  void start() override { servers_.open(); }
  void fetch(UnitId unit, Elements whole, bool in_step) override {
    servers_.link().pull(unit, servers_.version_of(unit), whole, !in_step);
  }
  void wait(UnitId unit) override { servers_.link().wait(unit, servers_.version_of(unit)); }
  void wait_unused(UnitId unit) override {
    wait(unit);
    servers_.link().wait_copied(unit);
  }
  Elements owned(UnitId /*unit*/) override { return {}; }
  void predict(std::span<const UnitId> fetched, Prediction& sum) const override {
    servers_.predict_pulls(fetched, plan_.layout.parameter_type, sum);
  }
  bool outcome_needs_fetch() const override {
    return world_.feedback != nullptr && plan_.optimizer.loss_scaler.active();
  }

 private:
  const Plan& plan_;
  const World& world_;
  Servers& servers_;
};

}  // namespace

std::unique_ptr<UnitSource> make_server_source(const Plan& plan, const World& world, Servers& servers) {
  return std::make_unique<ServerSource>(plan, world, servers);
}

}  // namespace psring::worker
