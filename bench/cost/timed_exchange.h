#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <psring/bench/cost/closed_forms.h>
#include <psring/bench/cost/stations.h>
#include <psring/bench/cost/step_model.h>
#include <psring/worker/exchange/plan.h>

namespace psring::bench {

/// The communication of one strategy in virtual time: the hooks of worker::Strategy, with the times at which the played
/// workers call each, and the times at which the calls return.
class TimedExchange {
 public:
  virtual ~TimedExchange() = default;
  virtual void begin_step() {}
  virtual Moments acquire(std::size_t /*unit*/, worker::Pass /*pass*/, const Moments& now) { return now; }
  virtual void release(std::size_t /*unit*/, worker::Pass /*pass*/) {}
  /// Backward is about to write the unit's gradient.
  virtual Moments open(std::size_t /*unit*/, const Moments& now) { return now; }
  virtual void ready(std::size_t /*unit*/, bool /*last_micro*/, const Moments& /*now*/) {}
  virtual Moments finish(const Moments& now) { return now; }
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
  /// Work of all processes that share a host's processors, which goes on while the leg before does. `every_s`: the
  /// work of all processes of the job; `host_s`: those of the host with the most work. REQUIRES: costs.processors > 0.
  Leg processors(double every_s, double host_s) const {
    return {.station = station(StepStation::processors),
            .service_s = (costs.one_host ? every_s : host_s) / costs.processors,
            .streams = true};
  }
  /// The same for the frames of a collective of all workers, which share one host's processors.
  FrameWork shared_work(double every_s) const;
  /// Time of an update of some elements at each worker, by one thread each.
  double update_s(double elements) const;
};

/// Does a worker sleep while a layer is computed (--compute)?
inline bool sleeps(const JobOptions& job) { return job.compute != "model"; }

/// By how much the work of one thread of each worker takes longer because a host has too few processors.
double crowding(const Mesh& mesh, const HostCosts& costs, std::size_t threads);

/// Workers on some hosts of a mesh that call collectives together. The other workers of each host do the same in groups
/// of their own: the messages of all workers of a host leave by its card one after the other. Where one worker is
/// played, all workers of the host act at the same times, and it sends last.
class TimedGroup {
 public:
  /// `hosts` and `per_host`: those of the group; `id`: its number among the groups of a worker, from 1; `stride`: of
  /// its members on a host.
  TimedGroup(const TimedJob& job, std::size_t hosts, std::size_t per_host, std::size_t id, std::size_t stride = 1);

  std::size_t size() const { return hosts_ * per_host_; }
  Legs all_reduce(double bytes) const { return known(Kind::all_reduce, std::span(&bytes, 1)); }
  /// `units`: the bytes of each unit of the vector.
  Legs reduce_scatter(std::span<const double> units) const { return known(Kind::reduce_scatter, units); }
  Legs all_gather(std::span<const double> units) const { return known(Kind::all_gather, units); }
  /// A message of `bytes` from each rank to each other rank: encoded ranges cannot be added on the way.
  Legs direct(double bytes) const { return known(Kind::direct, std::span(&bytes, 1)); }

 private:
  enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, direct };

  /// The legs of a call. A model has many units of the same size, and every step makes the same calls.
  Legs known(Kind kind, std::span<const double> units) const;
  std::vector<Leg> legs_of(Kind kind, std::span<const double> units) const;
  std::vector<Leg> all_reduce_legs(double bytes) const;
  std::vector<Leg> direct_legs(double bytes) const;
  /// `sums`: the messages are added to what the receiver has.
  void add(std::vector<Leg>& legs, StepStation station, const CollectiveTime& time, double sums) const;
  /// `columns`: members of a host that own a part.
  void add_within(std::vector<Leg>& legs, std::span<const double> units, double sums, std::size_t columns) const;
  void add_barrier(std::vector<Leg>& legs) const;
  void add_between(std::vector<Leg>& legs, const CollectiveTime& time, double sums, std::size_t columns) const;
  void add_gates(std::vector<Leg>& legs) const;
  /// `columns`: workers of the group on each host that send.
  Wire between(double sums, std::size_t columns) const;
  std::vector<Leg> scatter(std::span<const double> units, double sums) const;

  const TimedJob& job_;
  const std::size_t hosts_;
  const std::size_t per_host_;
  const std::size_t id_;
  const std::size_t stride_;
  const ring::Tuning tuning_;
  mutable std::map<std::pair<Kind, std::vector<double>>, Legs> known_;
};

/// The workers that cut units among themselves, and the replicas of each range (--shard-group).
struct TimedGroups {
  explicit TimedGroups(const TimedJob& job);
  TimedGroup owners;
  TimedGroup replicas;
};

/// The workers that divide each layer among themselves: --tensor consecutive ranks.
TimedGroup tensor_group(const TimedJob& job);
/// Workers of `stages` stages of one pipeline.
TimedGroup stage_group(const TimedJob& job, std::size_t stages);

/// A message to the stage before or after: the time on the card until it arrives, and the processors' work.
struct StageMessage {
  Leg leg;
  std::optional<Leg> work;
};
/// `within`: both stages are on one host.
StageMessage stage_message(const TimedJob& job, double bytes, bool within);

std::unique_ptr<TimedExchange> make_timed_ring(const TimedJob& job);

}  // namespace psring::bench
