#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/bench/predict/timed_job.h>
#include <psring/common/base/clock.h>
#include <psring/optim/codec/compression.h>
#include <psring/ring/plan/tuning.h>
#include <psring/ring/process_group.h>
#include <psring/worker/exchange/plan.h>

namespace psring::bench {

class PlannedClock;

/// Takes transfers down, which are played later.
class TransferList {
 public:
  virtual ~TransferList() = default;
  virtual Stations::Ticket begin(PlannedClock& clock, const Legs& legs) = 0;
  virtual void wait(PlannedClock& clock, Stations::Ticket ticket) = 0;
};

/// The time of the workers that are played: of one worker that stands for all, or of all workers of a host.
class PlannedClock final : public Clock {
 public:
  /// `list`: takes all transfers, which take no time; null: the stations do.
  explicit PlannedClock(Stations& stations, TransferList* list = nullptr)
      : stations_(stations), list_(list), now_(0, stations.lanes()) {}

  Moment now() const override { return Moment(from_seconds(now_.last())); }
  void sleep_until(Moment moment) const override { now_ = later(now_, {seconds(moment.time_since_epoch()), lanes()}); }
  const Moments& moments() const { return now_; }
  void pass(double seconds) { now_ += seconds; }
  void wait_until(double moment) { now_ = later(now_, {moment, lanes()}); }
  /// Waits for a transfer.
  void wait(Stations::Ticket ticket) {
    if (list_ != nullptr) return list_->wait(*this, ticket);
    now_ = later(now_, stations_.end_of(ticket, now_));
  }
  bool is_done(Stations::Ticket ticket) { return list_ == nullptr && stations_.done_by(ticket, now_); }
  Stations::Ticket submit(const Legs& legs) {
    return list_ != nullptr ? list_->begin(*this, legs) : stations_.submit(now_, legs);
  }
  std::size_t lanes() const { return stations_.lanes(); }

 private:
  Stations& stations_;
  TransferList* const list_;
  mutable Moments now_;
};

/// A group of workers that exists in virtual time alone: a collective is priced by the plan that ring/plan takes for
/// it, and occupies cards and processors. The other workers of each host do the same in groups of their own: the
/// messages of all workers of a host leave by its card one after the other. Where one worker is played, all workers of
/// the host act at the same times, and it sends last.
///
/// With --compress a reduction of gradients is priced as the collective of its codec; the strategy itself runs without
/// one, because codes for thousands of owners take as many calls. The time of encoding is not part of the prediction.
class PlannedGroup final : public ring::ProcessGroup {
 public:
  /// `ranks`: the members, as ranks of the job; `id`: unique among a worker's groups, from 1. `units`: whose gradients
  /// the group reduces. REQUIRES: job, clock and units outlive the group.
  PlannedGroup(const TimedJob& job, PlannedClock& clock, std::vector<std::size_t> ranks, std::size_t rank,
               std::size_t id, const std::vector<worker::UnitBuffers>& units);

  ring::Work start(const ring::Request& request) override;
  std::unique_ptr<ring::ProcessGroup> subgroup(const ring::Split& split) override;
  std::string describe(ring::Collective collective, std::size_t count, ring::ElementType type) const override;
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
  Legs known(Kind kind, std::span<const double> units) const;
  Legs known(Kind kind, double bytes) const { return known(kind, std::span(&bytes, 1)); }
  Legs legs_of(const ring::Request& request) const;
  Legs coded_legs(const ring::Request& request) const;
  Legs low_rank_legs(const ring::Vector& gradients) const;
  std::vector<std::size_t> units_in(const ring::Vector& gradients) const;
  std::vector<Leg> legs_of(Kind kind, std::span<const double> units) const;
  /// `sums`: the messages are added to what the receiver has.
  void add(std::vector<Leg>& legs, StepStation station, const CollectiveTime& time, double sums,
           const LaneGroup& lanes) const;
  /// `columns`: members of a host that own a part.
  void add_within(std::vector<Leg>& legs, std::span<const double> units, double sums, std::size_t columns) const;
  void add_barrier(std::vector<Leg>& legs) const;
  void add_gates(std::vector<Leg>& legs) const;
  Wire within() const;
  /// `columns`: workers of the group on each host that send.
  Wire between(double sums, std::size_t columns) const;
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

/// A message to the stage before or after: the time on the card until it arrives, and the processors' work, if these
/// are few. `within`: both stages are on one host.
std::vector<Leg> stage_message(const TimedJob& job, double bytes, bool within);

}  // namespace psring::bench
