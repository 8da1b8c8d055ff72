#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <psring/bench/predict/timed_job.h>
#include <psring/common/base/clock.h>
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
/// `ranks`: the members, as ranks of the job; `id`: unique among a worker's groups, from 1. `units`: whose gradients
/// the group reduces. REQUIRES: job, clock and units outlive the group.
std::unique_ptr<ring::ProcessGroup> make_timed_group(const TimedJob& job, PlannedClock& clock,
                                                     std::vector<std::size_t> ranks, std::size_t rank, std::size_t id,
                                                     const std::vector<worker::UnitBuffers>& units);

/// A message to the stage before or after: the time on the card until it arrives, and the processors' work, if these
/// are few. `within`: both stages are on one host.
std::vector<Leg> stage_message(const TimedJob& job, double bytes, bool within);

}  // namespace psring::bench
