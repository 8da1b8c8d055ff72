#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/ready_units.h>

namespace psring::worker {

void ReadyUnits::finish(Step step) {
  for (const UnitId unit : layout_.trained())
    if (!ready_[unit])
      fail(ErrorKind::usage,
           "step {}: no gradient of unit '{}' came; expected grad_ready of every unit in every step, if with zeros",
           step.index, layout_.units[unit].name);
  ready_.assign(ready_.size(), false);
}

}  // namespace psring::worker
