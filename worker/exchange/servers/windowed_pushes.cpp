#include <psring/worker/exchange/servers/windowed_pushes.h>

namespace psring::worker {

WindowedPushes::WindowedPushes(const Plan& plan, const World& world, Servers& servers, Answer answer)
    : world_(world), servers_(servers), answer_(answer), window_(plan, world, [this](UnitId unit) {
        servers_.host_sum().wait(unit);
        servers_.link().wait_acknowledged(unit);
      }) {}

void WindowedPushes::ready(UnitId unit, Micro micro, const Landed& /*landed*/) {
  const Elements gradient = window_.depart(unit);
  servers_.host_sum().add(unit, gradient, [this, unit, micro, gradient, step = servers_.step()] {
    if (servers_.host_sum().this_worker_pushes()) servers_.link().push(unit, step, gradient, micro.index);
    if (micro.last && answer_ == Answer::parameters)
      servers_.link().pull(unit, step + 1, world_.units[unit].parameters, false);
  });
}

}  // namespace psring::worker
