#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include <psring/bench/cost/coded_gradients.h>
#include <psring/bench/cost/timed_exchange.h>
#include <psring/ring/bucketer.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::bench {

using worker::Pass;

namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

net::LinkSpec shared(net::LinkSpec link, double among) {
  link.bits_per_second /= among;
  return link;
}

ring::Tuning tuning_of(const JobOptions& job) {
  ring::Tuning tuning = job.tuning.empty() ? ring::Tuning::built_in() : ring::Tuning::from_json(job.tuning);
  if (job.algorithm != "auto")
    for (ring::Tuning::Row& row : tuning.rows) row.algorithm = ring::parse_algorithm("--algorithm", job.algorithm);
  return tuning;
}

/// One transfer after the other; the second one waits for no others.
Legs joined(const Legs& first, const Legs& second) {
  std::vector<Leg> legs = *first;
  for (Leg leg : *second) {
    leg.group = 0;
    legs.push_back(std::move(leg));
  }
  return std::make_shared<const std::vector<Leg>>(std::move(legs));
}

}  // namespace

TimedGroup::TimedGroup(const TimedJob& job, std::size_t hosts, std::size_t per_host, std::size_t id,
                       std::size_t stride)
    : job_(job), hosts_(hosts), per_host_(per_host), id_(id), stride_(stride), tuning_(tuning_of(job.job)) {}

/// The card, which the workers of a host share. A byte that is added to what the receiver has takes as long as three
/// that are copied, because two are read and one is written.
Wire TimedGroup::between(double sums, std::size_t columns) const {
  constexpr std::size_t kMostSenders = 16;  // of more workers, several send as one
  const MessageCosts& costs = job_.costs.collective;
  const std::size_t lanes = job_.stations.lanes();
  const std::size_t workers = lanes > 1 ? 1 : job_.mesh.workers_per_host / per_host_ * columns;
  const std::size_t senders = std::min(workers, kMostSenders);
  Wire wire(shared(job_.mesh.between, static_cast<double>(workers) / static_cast<double>(senders)), costs.hop_s,
            costs.hop_s_per_byte + sums * job_.costs.aggregate_s_per_byte, senders);
  wire.lanes = lanes;
  return wire;
}

void TimedGroup::add(std::vector<Leg>& legs, StepStation station, const CollectiveTime& time, double sums) const {
  const net::LinkSpec& link = station == StepStation::within ? job_.mesh.within : job_.mesh.between;
  legs.push_back({.station = job_.station(station),
                  .service_s = time.occupies_s,
                  .alone_s = time.alone_s,
                  .drain_s = time.occupies_s > 0 ? seconds(link.delay) : 0,
                  .waits_for_call = !legs.empty(),
                  .frames = time.frames});
  if (job_.costs.processors <= 0) return;
  const MessageCosts& costs = job_.costs.collective;
  const double work = time.messages * costs.work_s +
                      time.moved_bytes * (costs.work_s_per_byte + sums * job_.costs.aggregate_s_per_byte);
  // The other groups of the same workers' hosts do the same at the same time.
  const double groups = static_cast<double>(job_.mesh.workers()) / static_cast<double>(size());
  const double columns = station == StepStation::within ? static_cast<double>(hosts_) : static_cast<double>(per_host_);
  const double every = work * groups * columns / static_cast<double>(job_.stations.lanes());
  if (job_.costs.one_host && job_.mesh.workers_per_host == 1 && time.frames)
    legs.back().work = job_.shared_work(every);
  else
    legs.push_back(job_.processors(every, every / static_cast<double>(job_.mesh.hosts)));
}

void TimedGroup::add_within(std::vector<Leg>& legs, std::span<const double> units, double sums,
                            std::size_t columns) const {
  if (per_host_ <= 1) return;
  const ring::Tuning::Row direct{.ranks = per_host_, .up_to_bytes = 0, .algorithm = ring::Algorithm::exchange};
  Wire wire(job_.mesh.within, job_.costs.within_hop_s, job_.costs.copy_s_per_byte);
  wire.lanes = job_.stations.lanes();
  const std::size_t first = legs.size();
  add(legs, StepStation::within, scatter_time(wire, per_host_, units, direct), sums);
  legs[first].lanes = {.size = per_host_,
                       .stride = stride_,
                       .owners = columns,
                       .kind = sums > 0 ? LaneGroup::Kind::reduces : LaneGroup::Kind::gathers};
}

/// Of a reduce-scatter or an all-gather between hosts, the stage that moves nothing within a host is a barrier.
void TimedGroup::add_barrier(std::vector<Leg>& legs) const {
  if (per_host_ <= 1 || hosts_ <= 1) return;
  const Wire wire(job_.mesh.within, job_.costs.within_hop_s, job_.costs.copy_s_per_byte);
  const std::size_t first = legs.size();
  add(legs, StepStation::within, barrier_time(wire, per_host_), 0);
  legs[first].lanes = {.size = per_host_,
                       .stride = stride_,
                       .owners = per_host_,
                       .kind = LaneGroup::Kind::reduces};
}

void TimedGroup::add_between(std::vector<Leg>& legs, const CollectiveTime& time, double sums,
                             std::size_t columns) const {
  if (hosts_ <= 1) return;
  const std::size_t first = legs.size();
  add(legs, StepStation::card_out, time, sums);
  legs[first].lanes = {.size = per_host_, .stride = stride_, .owners = columns};
}

/// Every transfer between hosts goes through all stages, even where a stage moves nothing.
void TimedGroup::add_gates(std::vector<Leg>& legs) const {
  if (job_.mesh.hosts <= 1 || job_.mesh.workers_per_host <= 1) return;
  bool goes_up = false;
  bool is_through = false;
  for (Leg& leg : legs) {
    leg.group = id_;
    if (leg.station == job_.station(StepStation::card_out)) {
      leg.gate = Leg::Gate::between;
      is_through = true;
    } else if (leg.station == job_.station(StepStation::within) && is_through) {
      leg.gate = Leg::Gate::up;
      goes_up = true;
    }
  }
  if (is_through && !goes_up) legs.push_back({.waits_for_call = true, .group = id_, .gate = Leg::Gate::up});
}

Legs TimedGroup::known(Kind kind, std::span<const double> units) const {
  const auto [known, is_new] = known_.try_emplace({kind, {units.begin(), units.end()}});
  if (is_new) {
    std::vector<Leg> legs = legs_of(kind, units);
    add_gates(legs);
    known->second = std::make_shared<const std::vector<Leg>>(std::move(legs));
  }
  return known->second;
}

std::vector<Leg> TimedGroup::legs_of(Kind kind, std::span<const double> units) const {
  const double bytes = std::accumulate(units.begin(), units.end(), 0.0);
  if (size() <= 1 || bytes <= 0) return {Leg{}};
  if (kind == Kind::all_reduce) return all_reduce_legs(bytes);
  if (kind == Kind::direct) return direct_legs(bytes);
  return scatter(units, kind == Kind::reduce_scatter ? 1 : 0);
}

/// A small vector is cut among fewer ranks of a host (ring::Hierarchy).
std::vector<Leg> TimedGroup::all_reduce_legs(double bytes) const {
  const double cuts = std::ceil(bytes / static_cast<double>(ring::kCutBytes));
  const auto columns = static_cast<std::size_t>(std::clamp(cuts, 1.0, static_cast<double>(per_host_)));
  const double column = bytes / static_cast<double>(columns);
  const double within = column * static_cast<double>(per_host_);
  std::vector<Leg> legs;
  add_within(legs, std::span(&within, 1), 1, columns);
  constexpr double kSums = 0.5;  // half of the rounds add, the others copy
  add_between(legs,
              all_reduce_time(between(kSums, columns), hosts_, column,
                              tuning_.pick(hosts_, static_cast<std::size_t>(column))),
              kSums, columns);
  add_within(legs, std::span(&within, 1), 0, columns);
  return legs;
}

std::vector<Leg> TimedGroup::scatter(std::span<const double> units, double sums) const {
  const double bytes = std::accumulate(units.begin(), units.end(), 0.0);
  std::vector<Leg> legs;
  if (sums > 0)
    add_within(legs, units, sums, per_host_);
  else
    add_barrier(legs);
  std::vector<double> columns(units.begin(), units.end());
  for (double& column : columns) column /= static_cast<double>(per_host_);
  // The whole vector's size picks the plan of each column (ring::LinkPlans).
  const ring::Tuning::Row plan = tuning_.pick(hosts_, static_cast<std::size_t>(bytes));
  add_between(legs, scatter_time(between(sums, per_host_), hosts_, columns, plan), sums,
              per_host_);
  if (sums > 0)
    add_barrier(legs);
  else
    add_within(legs, units, sums, per_host_);
  return legs;
}

std::vector<Leg> TimedGroup::direct_legs(double bytes) const {
  std::vector<Leg> legs;
  const double within = bytes * static_cast<double>(per_host_);
  add_within(legs, std::span(&within, 1), 1, per_host_);
  const std::size_t ranks = size() - per_host_ + 1;
  const double between_ranks = bytes * static_cast<double>(ranks);
  const ring::Tuning::Row exchange{.ranks = ranks, .up_to_bytes = 0, .algorithm = ring::Algorithm::exchange};
  add_between(legs, scatter_time(between(1, per_host_), ranks, std::span(&between_ranks, 1), exchange), 1,
              per_host_);
  return legs;
}

namespace {

/// Hosts and workers per host of a group of `size` workers, whose ranks differ by `stride`.
std::pair<std::size_t, std::size_t> place(const Mesh& mesh, std::size_t size, std::size_t stride = 1) {
  const std::size_t per_host = std::min(size, std::max<std::size_t>(1, mesh.workers_per_host / stride));
  return {std::max<std::size_t>(1, size / per_host), per_host};
}

/// The data-parallel group of a worker: it skips the other workers of its copy of the model.
TimedGroup owners_of(const TimedJob& job) {
  const std::size_t parts = job.job.mesh().model_workers();
  const std::size_t all = job.mesh.workers() / parts;
  const auto [hosts, per_host] = place(job.mesh, job.kind.stage == 0 ? all : job.work.layout.owners, parts);
  return {job, hosts, per_host, 1};
}

TimedGroup replicas_of(const TimedJob& job) {
  if (job.job.mesh().divides_model()) return {job, 1, 1, 2};
  const std::size_t owners = job.kind.stage == 0 ? job.mesh.workers() : job.work.layout.owners;
  const auto [hosts, per_host] = place(job.mesh, owners);
  return {job, job.mesh.hosts / hosts, job.mesh.workers_per_host / per_host, 2, per_host};
}

/// Base of the strategies between workers.
class Ring : public TimedExchange {
 protected:
  explicit Ring(const TimedJob& job) : job_(job), groups_(job), coded_(job.job, job.work.layout) {}

  const Layout& layout() const { return job_.work.layout; }
  double gradient_bytes(std::size_t unit) const { return static_cast<double>(layout().gradient_bytes(unit)); }
  double parameter_bytes(std::size_t unit) const { return static_cast<double>(layout().parameter_bytes(unit)); }
  std::vector<double> gradients_of(Range units) const {
    std::vector<double> bytes;
    for (std::size_t unit = units.begin; unit < units.end; ++unit) bytes.push_back(gradient_bytes(unit));
    return bytes;
  }
  Legs gather(std::size_t unit) const {
    const double bytes = parameter_bytes(unit);
    return groups_.owners.all_gather(std::span(&bytes, 1));
  }
  /// Time of the update of a worker's own part of some units.
  double update_s(Range units) const {
    double elements = 0;
    for (std::size_t unit = units.begin; unit < units.end; ++unit)
      elements += static_cast<double>(layout().trained_elements(unit));
    const double owners = job_.kind.stage == 0 ? 1 : static_cast<double>(layout().owners);
    return job_.update_s(elements / owners);
  }
  Range all() const { return {0, layout().units.size()}; }
  /// Reduces the units' gradients, and averages the owned part over the replicas.
  Legs reduction(Range units, bool and_average) const {
    const std::vector<double> gradients = gradients_of(units);
    const double bytes = std::accumulate(gradients.begin(), gradients.end(), 0.0);
    if (const auto factors = coded_.factors(units)) {
      const Legs first = groups_.owners.all_reduce(factors->first);
      return factors->second > 0 ? joined(first, groups_.owners.all_reduce(factors->second)) : first;
    }
    if (job_.kind.stage == 0 && coded_.has_codec()) {
      const double all = static_cast<double>(groups_.owners.size()) * codes(units);
      return groups_.owners.all_gather(std::span(&all, 1));
    }
    if (job_.kind.stage == 0) return groups_.owners.all_reduce(bytes);
    const Legs legs =
        coded_.has_codec() ? groups_.owners.direct(codes(units)) : groups_.owners.reduce_scatter(gradients);
    if (!and_average || groups_.replicas.size() <= 1) return legs;
    return joined(legs, groups_.replicas.all_reduce(bytes / static_cast<double>(layout().owners)));
  }
  /// The encoded bytes of one owner's ranges of the units.
  double codes(Range units) const {
    double sum = 0;
    for (std::size_t unit = units.begin; unit < units.end; ++unit)
      if (layout().units[unit].trained)
        sum += coded_.bytes(job_.kind.stage == 0 ? static_cast<double>(layout().units[unit].elements)
                                                 : static_cast<double>(layout().owned(unit, 0)));
    return sum;
  }

  const TimedJob job_;
  const TimedGroups groups_;
  const CodedGradients coded_;
};

/// ddp and zero1: gradients leave in buckets. zero1 gathers the updated ranges, bucket by bucket.
class Buckets final : public Ring {
 public:
  explicit Buckets(const TimedJob& job) : Ring(job), bucketer_(make(job)) {}

  void begin_step() override { bucketer_.begin_step(), reductions_.clear(); }
  Moments acquire(std::size_t unit, Pass pass, const Moments& at) override {
    Moments now = at;
    if (pass == Pass::forward)
      for (const auto& [units, gather] : gathers_)
        if (units.contains({unit, unit + 1})) now = later(now, job_.stations.end_of(gather, now));
    return now;
  }
  void ready(std::size_t unit, bool last_micro, const Moments& now) override {
    if (!last_micro) return;
    const std::size_t ready = bucketer_.ready(unit);
    if (job_.job.overlap) launch(ready, now);
  }
  Moments finish(const Moments& at) override {
    Moments now = at;
    launch(bucketer_.buckets().size(), now);
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
      now = later(now, job_.stations.end_of(reductions_[i], now));
      if (job_.kind.stage == 0) now += update_s(bucketer_.buckets()[i]);
    }
    if (job_.kind.stage == 0) return now;
    now += update_s(all());
    gathers_.clear();
    std::vector<Range> calls = bucketer_.buckets();
    std::sort(calls.begin(), calls.end());
    for (const Range units : calls) {
      std::vector<double> bytes;
      for (std::size_t unit = units.begin; unit < units.end; ++unit)
        if (layout().units[unit].trained) bytes.push_back(parameter_bytes(unit));
      gathers_.push_back({units, job_.stations.submit(now, groups_.owners.all_gather(bytes))});
    }
    return now;
  }

 private:
  static ring::Bucketer make(const TimedJob& job) {
    std::vector<std::size_t> bytes;
    for (std::size_t unit = 0; unit < job.work.layout.units.size(); ++unit)
      bytes.push_back(job.work.layout.gradient_bytes(unit));
    return {bytes, job.job.bucket_bytes, kFirstBucketBytes,
            job.job.bucket_order == "forward" ? ring::BucketOrder::forward : ring::BucketOrder::reverse};
  }
  void launch(std::size_t until, const Moments& now) {
    while (reductions_.size() < until)
      reductions_.push_back(job_.stations.submit(now, reduction(bucketer_.buckets()[reductions_.size()], true)));
  }

  ring::Bucketer bucketer_;
  std::vector<Stations::Ticket> reductions_;
  std::vector<std::pair<Range, Stations::Ticket>> gathers_;
};

/// ddp-naive: after backward, one tensor after the other.
class Tensors final : public Ring {
 public:
  explicit Tensors(const TimedJob& job) : Ring(job) {}
  Moments finish(const Moments& at) override {
    Moments now = at;
    const double each = static_cast<double>(size_bytes(layout().gradient_type));
    for (const std::size_t unit : layout().trained())
      for (const TensorLayout& tensor : layout().units[unit].tensors) {
        const double bytes = each * static_cast<double>(tensor.spec.elements());
        now = later(now, job_.stations.end_of(job_.stations.submit(now, groups_.owners.all_reduce(bytes)), now));
      }
    return now + update_s(all());
  }
};

/// zero2 and zero3: each unit's gradient is reduced by itself, for each micro-batch. At most two whole gradients exist
/// at a time. zero3 gathers a unit's parameters for each pass.
class Sharded final : public Ring {
 public:
  explicit Sharded(const TimedJob& job) : Ring(job), gathers_(layout().units.size(), Stations::kNone) {
    for (const auto& [unit, begins] : worker::forward_events(job.work.unit_layers))
      if (begins) order_[0].push_back(unit);
    for (const auto& [unit, begins] : worker::backward_events(job.work.backward_layers))
      if (begins) order_[1].push_back(unit);
  }

  void begin_step() override {
    if (job_.kind.gathers) std::fill(gathers_.begin(), gathers_.end(), Stations::kNone);
  }
  Moments acquire(std::size_t unit, Pass pass, const Moments& at) override {
    Moments now = at;
    if (job_.kind.gathers && !job_.job.share_host_parameters)
      for (const std::size_t next : wanted(unit, pass))
        if (gathers_[next] == Stations::kNone) gathers_[next] = job_.stations.submit(now, gather(next));
    return gathers_[unit] == Stations::kNone ? now : later(now, job_.stations.end_of(gathers_[unit], now));
  }
  void release(std::size_t unit, Pass pass) override {
    const bool drops =
        pass == Pass::backward || job_.job.reshard_after_forward || job_.work.backward_layers[unit].empty();
    if (job_.kind.gathers && drops) gathers_[unit] = Stations::kNone;
  }
  Moments open(std::size_t unit, const Moments& at) override {
    Moments now = at;
    while (window_.size() > 1 || std::find(window_.begin(), window_.end(), unit) != window_.end()) {
      if (!reductions_.empty() && reductions_.front().unit == window_.front()) now = take_first(now);
      window_.pop_front();
    }
    return now;
  }
  void ready(std::size_t unit, bool last_micro, const Moments& now) override {
    reductions_.push_back({unit, last_micro, job_.stations.submit(now, reduction({unit, unit + 1}, false))});
    window_.push_back(unit);
    while (!reductions_.empty() && job_.stations.done_by(reductions_.front().ticket, now)) take_first(now);
  }
  Moments finish(const Moments& at) override {
    Moments now = at;
    window_.clear();
    while (!reductions_.empty()) now = take_first(now);
    for (const Stations::Ticket average : averages_) now = later(now, job_.stations.end_of(average, now));
    averages_.clear();
    now += update_s(all());
    if (!job_.kind.gathers)
      for (const std::size_t unit : layout().trained()) gathers_[unit] = job_.stations.submit(now, gather(unit));
    return now;
  }

 private:
  struct Reduction {
    std::size_t unit = 0;
    bool last_micro = false;
    Stations::Ticket ticket = Stations::kNone;
  };
  /// Waits for the oldest reduction, and starts the average over the replicas (worker::ShardedGradients).
  Moments take_first(Moments now) {
    const Reduction first = reductions_.front();
    reductions_.pop_front();
    now = later(now, job_.stations.end_of(first.ticket, now));
    const double bytes = gradient_bytes(first.unit) / static_cast<double>(layout().owners);
    if (first.last_micro && groups_.replicas.size() > 1)
      averages_.push_back(job_.stations.submit(now, groups_.replicas.all_reduce(bytes)));
    return now;
  }
  /// As worker::FetchSchedule: the unit and the next ones in the pass.
  std::vector<std::size_t> wanted(std::size_t unit, Pass pass) const {
    const std::vector<std::size_t>& order = order_[pass == Pass::forward ? 0 : 1];
    const auto at = std::find(order.begin(), order.end(), unit);
    const auto left = static_cast<std::size_t>(order.end() - at);
    return {at, at + static_cast<std::ptrdiff_t>(std::min(job_.job.prefetch + 1, left))};
  }

  std::vector<std::size_t> order_[2];
  std::vector<Stations::Ticket> gathers_;  ///< by unit; none: the unit is not here
  std::deque<Reduction> reductions_;
  std::vector<Stations::Ticket> averages_;
  std::deque<std::size_t> window_;  ///< units whose gradients are in flight
};

}  // namespace

TimedGroups::TimedGroups(const TimedJob& job) : owners(owners_of(job)), replicas(replicas_of(job)) {}

TimedGroup tensor_group(const TimedJob& job) {
  const auto [hosts, per_host] = place(job.mesh, job.job.tensor);
  return {job, hosts, per_host, 3};
}

TimedGroup stage_group(const TimedJob& job, std::size_t stages) {
  const bool one_host = job.mesh.workers_per_host >= job.job.mesh().model_workers();
  return {job, one_host ? 1 : stages, one_host ? stages : 1, 4};
}

/// The card is shared by those workers of a host whose neighbours are on the next host: one tensor group at most.
StageMessage stage_message(const TimedJob& job, double bytes, bool within) {
  const HostCosts& costs = job.costs;
  const std::size_t senders = std::min(job.job.tensor, job.mesh.workers_per_host);
  const Wire wire = within ? Wire(job.mesh.within, costs.within_hop_s, costs.copy_s_per_byte)
                           : Wire(shared(job.mesh.between, static_cast<double>(senders)), costs.collective.hop_s,
                                  costs.collective.hop_s_per_byte);
  const auto segment =
      static_cast<double>(tuning_of(job.job).pick(job.job.pipeline, static_cast<std::size_t>(bytes)).segment_bytes);
  const CollectiveTime time = message_time(wire, bytes, segment);
  StageMessage message{.leg = {.station = job.station(within ? StepStation::within : StepStation::card_out),
                               .service_s = time.occupies_s,
                               .alone_s = time.alone_s,
                               .drain_s = time.alone_s - time.occupies_s},
                       .work = {}};
  if (costs.processors <= 0) return message;
  const double work = time.messages * costs.collective.work_s + bytes * costs.collective.work_s_per_byte;
  const auto share = [&](std::size_t workers) { return work * static_cast<double>(workers); };
  message.work = job.processors(share(job.mesh.workers()), share(job.mesh.workers_per_host));
  return message;
}

std::unique_ptr<TimedExchange> make_timed_ring(const TimedJob& job) {
  if (job.kind.at_owner) return std::make_unique<Sharded>(job);
  if (job.kind.buckets) return std::make_unique<Buckets>(job);
  return std::make_unique<Tensors>(job);
}

}  // namespace psring::bench
