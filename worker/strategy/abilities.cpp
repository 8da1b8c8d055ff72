#include <psring/worker/strategy/abilities.h>

namespace psring::worker {

Abilities::Abilities(Strategy& strategy)
    : saving(dynamic_cast<Saving*>(&strategy)),
      resuming(dynamic_cast<Resuming*>(&strategy)),
      scaling(dynamic_cast<LossScaling*>(&strategy)),
      pacing(dynamic_cast<Pacing*>(&strategy)),
      exchanging(dynamic_cast<Exchanging*>(&strategy)) {}

}  // namespace psring::worker
