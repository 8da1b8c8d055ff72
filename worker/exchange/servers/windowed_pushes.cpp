#include <psring/worker/exchange/gradient_window.h>
#include <psring/worker/exchange/servers/pushed_gradients.h>

namespace psring::worker {
namespace {

class WindowedPushes final : public Gradients {
 public:
  WindowedPushes(const Plan& plan, const World& world, Servers& servers, Answer answer)
      : world_(world), servers_(servers), answer_(answer), window_(plan, world, [this](UnitId unit) {
          servers_.host_sum().wait(unit);
          servers_.link().wait_acknowledged(unit);
        }) {}

  void open(UnitId unit) override { window_.open(unit); }
  void ready(UnitId unit, Micro micro, const Landed& landed) override;
  void finish(Step /*step*/, const Landed& /*landed*/) override { window_.drain(); }
  Elements owned(UnitId /*unit*/) override { return {}; }
  void predict(Prediction& sum) const override { servers_.predict_pushes(sum); }
  std::unique_ptr<Holding> holding() const override { return window_.holding(); }

 private:
  const World& world_;
  Servers& servers_;
  const Answer answer_;
  GradientWindow window_;
};

void WindowedPushes::ready(UnitId unit, Micro micro, const Landed& /*landed*/) {
  const Elements gradient = window_.depart(unit);
  servers_.host_sum().add(unit, gradient, [this, unit, micro, gradient, step = servers_.step()] {
    if (servers_.host_sum().this_worker_pushes()) servers_.link().push(unit, step, gradient, micro.index);
    if (micro.last && answer_ == Answer::parameters)
      servers_.link().pull(unit, step + 1, world_.units[unit].parameters, false);
  });
}

}  // namespace

std::unique_ptr<Gradients> make_windowed_pushes(const Plan& plan, const World& world, Servers& servers, Answer answer) {
  return std::make_unique<WindowedPushes>(plan, world, servers, answer);
}

}  // namespace psring::worker
