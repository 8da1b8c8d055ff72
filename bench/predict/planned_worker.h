#pragma once

#include <functional>
#include <memory>

#include <psring/bench/predict/planned_group.h>
#include <psring/worker/exchange/servers/server_link.h>
#include <psring/worker/exchange/tables/tables.h>

namespace psring::bench {

/// Makes the links of a planned worker.
struct PlannedLinks {
  std::function<std::unique_ptr<worker::ServerLink>(PlannedClock&)> make_link = {};  ///< to servers
  std::function<std::unique_ptr<worker::Tables>(PlannedClock&)> make_tables = {};    ///< whose rows these have
  TransferList* transfers = nullptr;  ///< between workers; null: they take their time
};

/// A worker of a job in virtual time: the job's own strategy, walked through by worker::Walk as in training. Its group,
/// its device and its network only let time pass: no tensor has memory. One worker stands for all workers of the same
/// stage, which act alike.
class PlannedWorker {
 public:
  virtual ~PlannedWorker() = default;
  virtual PlannedClock& clock() = 0;
  virtual void begin_step() = 0;
  virtual void forward() = 0;
  virtual void backward(std::size_t micro) = 0;
  /// Sums the gradients of tensors that several stages hold, and hands them over.
  virtual void sum_shared() = 0;
  virtual void finish_step() = 0;
};
/// `stage`: of the pipeline. REQUIRES: the job's parts and the stations outlive the worker.
std::unique_ptr<PlannedWorker> make_planned_worker(const TimedJob& job, std::size_t stage, const ComputePace& pace,
                                                   Stations& stations, const PlannedLinks& links = {});

}  // namespace psring::bench
