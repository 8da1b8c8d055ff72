#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <psring/bench/cost/timed_exchange.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/plan/algorithm.h>

namespace psring::bench {
namespace {

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

}  // namespace

TimedGroup::TimedGroup(const TimedJob& job, std::size_t hosts, std::size_t per_host, std::size_t id, std::size_t stride)
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
  const double bytes = std::accumulate(units.begin(), units.end(), 0.0);
  ring::Tuning::Row direct = tuning_.pick(per_host_, static_cast<std::size_t>(bytes));
  direct.algorithm = ring::Algorithm::exchange;
  Wire wire(job_.mesh.within, job_.costs.within_hop_s, job_.costs.copy_s_per_byte);
  wire.lanes = job_.stations.lanes();
  const std::size_t first = legs.size();
  add(legs, StepStation::within, scatter_time(wire, per_host_, units, direct), sums);
  legs[first].lanes = {.size = per_host_,
                       .stride = stride_,
                       .owners = columns,
                       .kind = sums > 0 ? LaneGroup::Kind::reduces : LaneGroup::Kind::gathers};
}

/// A reduce-scatter and an all-gather between hosts have a stage that moves nothing within a host: a barrier.
void TimedGroup::add_barrier(std::vector<Leg>& legs) const {
  if (per_host_ <= 1 || hosts_ <= 1) return;
  const Wire wire(job_.mesh.within, job_.costs.within_hop_s, job_.costs.copy_s_per_byte);
  const std::size_t first = legs.size();
  add(legs, StepStation::within, barrier_time(wire, per_host_), 0);
  legs[first].lanes = {.size = per_host_, .stride = stride_, .owners = per_host_, .kind = LaneGroup::Kind::reduces};
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
  add_between(
      legs,
      all_reduce_time(between(kSums, columns), hosts_, column, tuning_.pick(hosts_, static_cast<std::size_t>(column))),
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
  add_between(legs, scatter_time(between(sums, per_host_), hosts_, columns, plan), sums, per_host_);
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
  add_between(legs, scatter_time(between(1, per_host_), ranks, std::span(&between_ranks, 1), exchange), 1, per_host_);
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

}  // namespace psring::bench
