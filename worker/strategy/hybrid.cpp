#include <psring/worker/strategy/strategies.h>

namespace psring::worker {

void register_hybrid(Registry<StrategyKind>& registry) {
  StrategyKind hybrid{.ring = true,
                      .buckets = true,
                      .whole = true,
                      .tables = true,
                      .row_servers = true,
                      .make = registry.make(Spec::parse("--strategy", "ddp"))->make};
  add_strategy(registry, "hybrid", "ddp for dense parameters; servers own the rows of tables", hybrid);
  hybrid.colocated = true;
  add_strategy(registry, "hybrid-colocated", "hybrid with a server in each worker's process", hybrid);
  hybrid.colocated = false;
  hybrid.table_consistency = "asp";
  add_strategy(registry, "hybrid-async", "hybrid where each push of rows is an update, and nobody waits", hybrid);
}

}  // namespace psring::worker
