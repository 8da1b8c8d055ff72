#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/worker/strategy/ready_units.h>

namespace psring::worker {

void ReadyUnits::finish(Step step) {
  const auto missing = std::find(ready_.begin(), ready_.end(), false);
  if (missing != ready_.end())
    fail(ErrorKind::usage,
         "step {}: no gradient of unit '{}' came; expected grad_ready of every unit in every step, if with zeros",
         step.index, layout_.units[static_cast<std::size_t>(missing - ready_.begin())].name);
  ready_.assign(ready_.size(), false);
}

}  // namespace psring::worker
