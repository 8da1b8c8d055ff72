#pragma once

#include <functional>
#include <memory>
#include <string>

#include <psring/common/base/registry.h>
#include <psring/common/proc/job.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/model/model.h>
#include <psring/worker/strategy/strategy.h>

namespace psring::worker {

/// A way of training, as it is registered: what processes it takes, and how it is made.
struct StrategyKind {
  bool servers = false;                 ///< parameters are reached through servers
  bool colocated = false;               ///< its servers live in workers' processes, whatever --placement says
  bool one_server = false;              ///< whatever --servers says
  bool scatters = false;                ///< worker 0 reads all samples and sends the others theirs
  bool ring = false;                    ///< workers reach each other, as a ring::ProcessGroup
  bool buckets = false;                 ///< its gradients travel in buckets, as --bucket says
  bool compresses = false;              ///< its gradients may travel as --compress writes them
  bool gathers = false;                 ///< its parameters are gathered for each pass, as --prefetch says
  bool at_owner = false;                ///< micro-batches are added up by the owners of ranges, after they are reduced
  bool whole = false;                   ///< every worker has all that the job needs to go on (Strategy::whole_state)
  bool on_device = false;               ///< its buffers may lie in a GPU's memory
  bool one_worker = false;              ///< it is one process, whatever --workers says
  const char* optimizer_on = "server";  ///< where nothing is said
  const char* consistency = "bsp";      ///< where nothing is said
  bool exact = true;                    ///< ends in the same bits as `single` with as many virtual workers
  int stage = 0;                        ///< of ZeRO: what a worker does not keep whole
  std::function<std::unique_ptr<Strategy>(const Context&, const JobOptions&)> make;
};

/// The names that a worker knows; the App owns them, and a user's are added like the built-in ones.
struct Registries {
  Registry<Model> models;
  DatasetRegistry datasets;
  Registry<StrategyKind> strategies;
};

void register_builtins(Registries& registries);

}  // namespace psring::worker
