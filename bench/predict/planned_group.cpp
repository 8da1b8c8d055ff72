#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include <psring/bench/predict/planned_group.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/tuning.h>
#include <psring/ring/request.h>
#include <psring/ring/split.h>

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

/// A transfer in virtual time: to wait for it moves the clock.
class PlannedTransfer final : public ring::Operation {
 public:
  PlannedTransfer(PlannedClock& clock, Stations::Ticket ticket) : clock_(clock), ticket_(ticket) {}
  bool advance() override { return clock_.is_done(ticket_); }
  void wait() override { clock_.wait(ticket_); }
  std::vector<std::size_t> awaited() const override { return {0}; }

 private:
  PlannedClock& clock_;
  const Stations::Ticket ticket_;
};

/// One transfer after the other; the second one waits for no others.
Legs joined(const Legs& first, const Legs& second) {
  std::vector<Leg> legs = *first;
  for (Leg leg : *second) {
    leg.gate = Leg::Gate::none;
    legs.push_back(std::move(leg));
  }
  return std::make_shared<const std::vector<Leg>>(std::move(legs));
}

/// See make_timed_group.
class PlannedGroup final : public ring::ProcessGroup {
 public:
  PlannedGroup(const TimedJob& job, PlannedClock& clock, std::vector<std::size_t> ranks, std::size_t rank,
               std::size_t id, const std::vector<worker::UnitBuffers>& units)
      : ProcessGroup(rank, ranks.size()),
        job_(job),
        clock_(clock),
        ranks_(std::move(ranks)),
        id_(id),
        units_(units),
        tuning_(tuning_of(job.job)),
        codec_(optim::make_codec(job.job.compress, job.job.error_feedback)) {
    const auto host_of = [&](std::size_t member) { return ranks_[member] / job.mesh.workers_per_host; };
    for (std::size_t member = 0; member < ranks_.size(); ++member)
      if (member != rank && host_of(member) == host_of(rank)) ++per_host_;
    hosts_ = std::max<std::size_t>(1, ranks_.size() / per_host_);
    for (std::size_t i = 1; per_host_ > 1 && i < ranks_.size() && stride_ == 1; ++i)
      if (host_of(i) == host_of(i - 1)) stride_ = ranks_[i] - ranks_[i - 1];
  }

  ring::Work start(const ring::Request& request) override {
    using ring::Collective;
    const Collective collective = request.call.collective;
    if (collective == Collective::broadcast || collective == Collective::barrier) return {};  // outside of a step
    if (collective == Collective::send || collective == Collective::recv)
      fail(ErrorKind::usage, "psring plan predicts no messages between two workers; use psring compare");
    const Stations::Ticket ticket = clock_.submit(legs_of(request));
    return ring::Work(std::make_shared<PlannedTransfer>(clock_, ticket));  // shared, as all operations are
  }

  std::unique_ptr<ring::ProcessGroup> subgroup(const ring::Split& split) override {
    std::vector<std::size_t> ranks;
    for (const std::size_t rank : split.ranks) ranks.push_back(ranks_[rank]);
    return std::make_unique<PlannedGroup>(job_, clock_, std::move(ranks), split.rank, split.id + 1, units_);
  }
  std::string describe(ring::Collective collective, std::size_t /*count*/, ring::ElementType /*type*/) const override {
    return fmt::format("{}: planned", to_string(collective));
  }
  /// Nothing: bytes are predicted by ring::make_planned_group.
  ring::Cost predict(ring::Collective, std::size_t, ring::ElementType, const ring::Parts&, std::size_t) const override {
    return {};
  }
  bool sums_in_rank_order(ring::Collective, ring::ElementType) const override { return true; }
  ring::Moved moved() const override { return {}; }

 private:
  enum class Kind : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    direct,  ///< from each rank to each other rank: encoded ranges cannot be added on the way
  };

  /// The legs of a call. A model has many units of the same size, and every step makes the same calls.
  Legs known(Kind kind, std::span<const double> units) const {
    const auto [known, is_new] = known_.try_emplace({kind, {units.begin(), units.end()}});
    if (is_new) {
      std::vector<Leg> legs = legs_of(kind, units);
      add_gates(legs);
      known->second = std::make_shared<const std::vector<Leg>>(std::move(legs));
    }
    return known->second;
  }

  Legs known(Kind kind, double bytes) const { return known(kind, std::span(&bytes, 1)); }

  Legs legs_of(const ring::Request& request) const {
    const ring::Call& call = request.call;
    const ring::Collective sums =
        job_.kind.stage == 0 ? ring::Collective::all_reduce : ring::Collective::reduce_scatter;
    const bool of_gradients = call.collective == sums && call.op == ring::ReduceOp::Kind::mean;
    if (of_gradients && optim::compresses(job_.job.compress)) return coded_legs(request);
    const auto each = static_cast<double>(call.type.bytes());
    if (call.collective == ring::Collective::all_reduce)
      return known(Kind::all_reduce, each * static_cast<double>(call.count));
    std::vector<double> units;
    for (const Range range : (*request.parts)[rank()])
      units.push_back(each * static_cast<double>(range.size() * request.parts->size()));
    return known(call.collective == ring::Collective::all_gather ? Kind::all_gather : Kind::reduce_scatter, units);
  }

  Legs coded_legs(const ring::Request& request) const {
    if (codec_ == nullptr) return low_rank_legs(request.data);
    double codes = 0;
    if (request.parts == nullptr) {
      for (const std::size_t unit : units_in(request.data))
        codes += static_cast<double>(codec_->bytes(job_.work.layout.units[unit].elements));
      return known(Kind::all_gather, codes * members());
    }
    for (const Range range : (*request.parts)[rank()]) codes += static_cast<double>(codec_->bytes(range.size()));
    return known(Kind::direct, codes);
  }

  /// PowerSGD's two all-reduces, one after the other.
  Legs low_rank_legs(const ring::Vector& gradients) const {
    const std::size_t most = *optim::power_sgd_rank(job_.job.compress);
    double first = 0;
    double second = 0;
    for (const std::size_t unit : units_in(gradients))
      for (const TensorLayout& tensor : job_.work.layout.units[unit].tensors) {
        const auto dims = optim::low_rank(tensor.spec.shape, most);
        first += sizeof(float) * static_cast<double>(dims ? dims->p_elements() : tensor.spec.elements());
        if (dims) second += sizeof(float) * static_cast<double>(dims->q_elements());
      }
    const Legs all = known(Kind::all_reduce, first);
    return second > 0 ? joined(all, known(Kind::all_reduce, second)) : all;
  }

  std::vector<std::size_t> units_in(const ring::Vector& gradients) const {
    const auto* const end = gradients.data + gradients.count * gradients.type.bytes();
    std::vector<std::size_t> units;
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
      if (const std::byte* at = units_[unit].gradients.data(); at != nullptr && at >= gradients.data && at < end)
        units.push_back(unit);
    return units;
  }

  /// Stages within the hosts before and after that between them (ring::Hierarchy).
  std::vector<Leg> legs_of(Kind kind, std::span<const double> units) const {
    const double bytes = std::accumulate(units.begin(), units.end(), 0.0);
    if (hosts_ * per_host_ <= 1 || bytes <= 0) return {Leg{}};
    const auto near = static_cast<double>(per_host_);
    std::vector<double> all(units.begin(), units.end());
    std::size_t columns = per_host_;
    double sums = kind == Kind::all_gather ? 0 : 1;
    CollectiveTime time;
    if (kind == Kind::all_reduce) {
      // A small vector is cut among fewer ranks of a host.
      columns =
          static_cast<std::size_t>(std::clamp(std::ceil(bytes / static_cast<double>(ring::kCutBytes)), 1.0, near));
      const double column = bytes / static_cast<double>(columns);
      all = {column * near};
      sums = 0.5;  // half of the rounds add, the others copy
      time = all_reduce_time(between(sums, columns), hosts_, column,
                             tuning_.pick(hosts_, static_cast<std::size_t>(column)));
    } else if (kind == Kind::direct) {
      all = {bytes * near};
      const std::size_t ranks = hosts_ * per_host_ - per_host_ + 1;
      const double between_ranks = bytes * static_cast<double>(ranks);
      const ring::Tuning::Row exchange{.ranks = ranks, .up_to_bytes = 0, .algorithm = ring::Algorithm::exchange};
      time = scatter_time(between(sums, columns), ranks, std::span(&between_ranks, 1), exchange);
    } else {
      std::vector<double> parts = all;
      for (double& part : parts) part /= near;
      // The whole vector's size picks the plan of each column (ring::LinkPlans).
      time = scatter_time(between(sums, columns), hosts_, parts, tuning_.pick(hosts_, static_cast<std::size_t>(bytes)));
    }
    std::vector<Leg> legs;
    if (kind == Kind::all_gather)
      add_barrier(legs);
    else
      add_within(legs, all, 1, columns);
    if (hosts_ > 1) add(legs, StepStation::card_out, time, sums, {per_host_, stride_, columns});
    if (kind == Kind::reduce_scatter)
      add_barrier(legs);
    else if (kind != Kind::direct)
      add_within(legs, all, 0, columns);
    return legs;
  }

  /// `sums`: the messages are added to what the receiver has.
  void add(std::vector<Leg>& legs, StepStation station, const CollectiveTime& time, double sums,
           const LaneGroup& lanes) const {
    const net::LinkSpec& link = station == StepStation::within ? job_.mesh.within : job_.mesh.between;
    legs.push_back({.station = job_.station(station),
                    .service_s = time.occupies_s,
                    .alone_s = time.alone_s,
                    .drain_s = time.occupies_s > 0 ? seconds(link.delay) : 0,
                    .waits_for_call = !legs.empty(),
                    .frames = time.frames,
                    .lanes = lanes});
    if (job_.costs.processors <= 0) return;
    const MessageCosts& costs = job_.costs.collective;
    const double work = time.messages * costs.work_s +
                        time.moved_bytes * (costs.work_s_per_byte + sums * job_.costs.aggregate_s_per_byte);
    // The other groups of the same workers' hosts do the same at the same time.
    const double groups = static_cast<double>(job_.mesh.workers()) / members();
    const double columns =
        station == StepStation::within ? static_cast<double>(hosts_) : static_cast<double>(per_host_);
    const double every = work * groups * columns / static_cast<double>(clock_.lanes());
    if (job_.costs.one_host && job_.mesh.workers_per_host == 1 && time.frames)
      legs.back().work = job_.shared_work(every);
    else
      legs.push_back(job_.processors(every, every / static_cast<double>(job_.mesh.hosts)));
  }

  /// `columns`: members of a host that own a part.
  void add_within(std::vector<Leg>& legs, std::span<const double> units, double sums, std::size_t columns) const {
    if (per_host_ <= 1) return;
    const double bytes = std::accumulate(units.begin(), units.end(), 0.0);
    ring::Tuning::Row direct = tuning_.pick(per_host_, static_cast<std::size_t>(bytes));
    direct.algorithm = ring::Algorithm::exchange;
    add(legs, StepStation::within, scatter_time(within(), per_host_, units, direct), sums,
        {per_host_, stride_, columns, sums > 0 ? LaneGroup::Kind::reduces : LaneGroup::Kind::gathers});
  }

  /// A reduce-scatter and an all-gather between hosts have a stage that moves nothing within a host: a barrier.
  void add_barrier(std::vector<Leg>& legs) const {
    if (per_host_ <= 1 || hosts_ <= 1) return;
    add(legs, StepStation::within, barrier_time(within(), per_host_), 0,
        {per_host_, stride_, per_host_, LaneGroup::Kind::reduces});
  }

  /// Every transfer between hosts goes through all stages, even where a stage moves nothing.
  void add_gates(std::vector<Leg>& legs) const {
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

  Wire within() const {
    Wire wire(job_.mesh.within, job_.costs.within_hop_s, job_.costs.copy_s_per_byte);
    wire.lanes = clock_.lanes();
    return wire;
  }

  /// The card, which the workers of a host share. A byte that is added to what the receiver has takes as long as three
  /// that are copied, because two are read and one is written. `columns`: workers of the group on each host that send.
  Wire between(double sums, std::size_t columns) const {
    constexpr std::size_t kMostSenders = 16;  // of more workers, several send as one
    const MessageCosts& costs = job_.costs.collective;
    const std::size_t lanes = clock_.lanes();
    const std::size_t workers = lanes > 1 ? 1 : job_.mesh.workers_per_host / per_host_ * columns;
    const std::size_t senders = std::min(workers, kMostSenders);
    Wire wire(shared(job_.mesh.between, static_cast<double>(workers) / static_cast<double>(senders)), costs.hop_s,
              costs.hop_s_per_byte + sums * job_.costs.aggregate_s_per_byte, senders);
    wire.lanes = lanes;
    return wire;
  }

  double members() const { return static_cast<double>(hosts_ * per_host_); }

  const TimedJob& job_;
  PlannedClock& clock_;
  const std::vector<std::size_t> ranks_;
  const std::size_t id_;
  const std::vector<worker::UnitBuffers>& units_;
  std::size_t hosts_ = 1;
  std::size_t per_host_ = 1;  ///< members on each host
  std::size_t stride_ = 1;    ///< of the members of a host
  const ring::Tuning tuning_;
  const std::unique_ptr<optim::Codec> codec_;  ///< null: gradients are not encoded range by range
  mutable std::map<std::pair<Kind, std::vector<double>>, Legs> known_;
};

}  // namespace

std::unique_ptr<ring::ProcessGroup> make_timed_group(const TimedJob& job, PlannedClock& clock,
                                                     std::vector<std::size_t> ranks, std::size_t rank, std::size_t id,
                                                     const std::vector<worker::UnitBuffers>& units) {
  return std::make_unique<PlannedGroup>(job, clock, std::move(ranks), rank, id, units);
}

/// The card is shared by those workers of a host whose neighbours are on the next host: one tensor group at most.
std::vector<Leg> stage_message(const TimedJob& job, double bytes, bool within) {
  const HostCosts& costs = job.costs;
  const std::size_t senders = std::min(job.job.tensor, job.mesh.workers_per_host);
  const Wire wire = within ? Wire(job.mesh.within, costs.within_hop_s, costs.copy_s_per_byte)
                           : Wire(shared(job.mesh.between, static_cast<double>(senders)), costs.collective.hop_s,
                                  costs.collective.hop_s_per_byte);
  const auto segment =
      static_cast<double>(tuning_of(job.job).pick(job.job.pipeline, static_cast<std::size_t>(bytes)).segment_bytes);
  const CollectiveTime time = message_time(wire, bytes, segment);
  std::vector<Leg> legs{{.station = job.station(within ? StepStation::within : StepStation::card_out),
                         .service_s = time.occupies_s,
                         .alone_s = time.alone_s,
                         .drain_s = time.alone_s - time.occupies_s}};
  if (costs.processors <= 0) return legs;
  const double work = time.messages * costs.collective.work_s + bytes * costs.collective.work_s_per_byte;
  const auto share = [&](std::size_t workers) { return work * static_cast<double>(workers); };
  legs.push_back(job.processors(share(job.mesh.workers()), share(job.mesh.workers_per_host)));
  return legs;
}

}  // namespace psring::bench
