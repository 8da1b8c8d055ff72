#pragma once

#include <functional>
#include <memory>

#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// A registered way of training: its needs, its abilities, and the function that makes it. Each strategy's file sets
/// these beside its make function.
struct StrategyKind {
  bool servers = false;                 ///< parameters are reached through servers
  bool colocated = false;               ///< its servers live in the workers' processes, whatever --placement says
  bool one_server = false;              ///< it has one server, whatever --servers says
  bool scatters = false;                ///< worker 0 reads all samples, and sends the others theirs
  bool ring = false;                    ///< workers reach each other, as a ring::ProcessGroup
  bool buckets = false;                 ///< its gradients travel in buckets, as --bucket says
  bool compresses = false;              ///< its gradients may travel compressed, as --compress says
  bool gathers = false;                 ///< its parameters are fetched for each pass, as --prefetch says
  bool at_owner = false;                ///< the owners of ranges add up micro-batches, after they are reduced
  bool whole = false;                   ///< every worker has all that the job needs to go on (Resuming)
  bool on_device = false;               ///< its buffers may lie in a GPU's memory
  bool tables = false;                  ///< it trains models with tables
  bool row_servers = false;             ///< rows of tables are at servers, and nothing else
  bool one_worker = false;              ///< it is one process, whatever --workers says
  const char* optimizer_on = "server";  ///< default of --optimizer-on
  const char* consistency = "bsp";      ///< default of --consistency
  const char* table_consistency = "";   ///< default of --table-consistency
  bool exact = true;                    ///< bitwise identical to `single` with the same number of virtual workers
  int stage = 0;                        ///< ZeRO's stage: the state that a worker does not keep whole
  std::function<std::unique_ptr<Strategy>(const Plan&, const World&)> make;

  /// Its jobs have servers, whatever these hold.
  bool has_servers() const { return servers || row_servers; }
};

}  // namespace psring::worker
