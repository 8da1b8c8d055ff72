#pragma once

#include <functional>
#include <memory>
#include <span>

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
  /// `stage`: of the pipeline. REQUIRES: the job's parts and the stations outlive the worker.
  PlannedWorker(const TimedJob& job, std::size_t stage, const ComputePace& pace, Stations& stations,
                const PlannedLinks& links = {});
  ~PlannedWorker();

  PlannedClock& clock();
  void begin_step();
  void forward();
  void backward(std::size_t micro);
  /// Sums the gradients of tensors that several stages hold, and hands them over.
  void sum_shared();
  void finish_step();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace psring::bench
