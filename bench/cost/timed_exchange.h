#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/bench/cost/closed_forms.h>
#include <psring/bench/cost/stations.h>
#include <psring/bench/cost/step_model.h>
#include <psring/worker/exchange/plan.h>

namespace psring::bench {

/// The communication of one strategy in virtual time: the hooks of worker::Strategy, with the time at which the worker
/// calls each, and the time at which the call returns.
class TimedExchange {
 public:
  virtual ~TimedExchange() = default;
  virtual void begin_step() {}
  virtual double acquire(std::size_t /*unit*/, worker::Pass /*pass*/, double now) { return now; }
  virtual void release(std::size_t /*unit*/, worker::Pass /*pass*/) {}
  /// Backward is about to write the unit's gradient.
  virtual double open(std::size_t /*unit*/, double now) { return now; }
  virtual void ready(std::size_t /*unit*/, bool /*last_micro*/, double /*now*/) {}
  virtual double finish(double now) { return now; }
};

/// All that an exchange refers to.
struct TimedJob {
  const JobOptions& job;
  const worker::StrategyKind& kind;
  const Workload& work;
  const Mesh& mesh;
  const HostCosts& costs;
  Stations& stations;

  std::size_t station(StepStation of) const { return static_cast<std::size_t>(of); }
};

/// Workers on some hosts of a mesh that call collectives together. The other workers of each host do the same at the
/// same time in groups of their own, so that each worker has its share of the host's card.
class TimedGroup {
 public:
  /// `hosts` and `per_host`: those of the group.
  TimedGroup(const TimedJob& job, std::size_t hosts, std::size_t per_host);

  std::size_t size() const { return hosts_ * per_host_; }
  std::vector<Leg> all_reduce(double bytes) const;
  std::vector<Leg> reduce_scatter(double bytes) const;
  std::vector<Leg> all_gather(double bytes) const;

 private:
  Leg leg(StepStation station, const CollectiveTime& time) const;
  Leg within(double bytes) const;

  const TimedJob& job_;
  const std::size_t hosts_;
  const std::size_t per_host_;
  const ring::Tuning tuning_;
};

/// The workers that cut units among themselves, and the replicas of each range (--shard-group).
struct TimedGroups {
  explicit TimedGroups(const TimedJob& job);
  TimedGroup owners;
  TimedGroup replicas;
};

std::unique_ptr<TimedExchange> make_timed_ring(const TimedJob& job);
std::unique_ptr<TimedExchange> make_timed_servers(const TimedJob& job);

/// The bytes that an update reads and writes for each element: gradient, parameter and optimizer state.
double update_bytes_per_element(const JobOptions& job, const Layout& layout);

}  // namespace psring::bench
