#include <algorithm>
#include <memory>
#include <utility>

#include <psring/bench/predict/worker_actions.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/worker/model/layer.h>

namespace psring::bench {
namespace {

using worker::Step;
using worker::TableId;
using worker::UnitId;
using Kind = WorkerAction::Kind;

/// Legs within hosts, and rounds one after the other, take time in which the card is free for rows.
WorkerAction transfer_of(const TimedJob& job, const Legs& legs) {
  const bool between = job.mesh.hosts > 1;
  double card_s = 0;
  double whole_s = 0;
  double work_s = 0;
  for (const Leg& leg : *legs) {
    if (leg.station == job.station(between ? StepStation::card_out : StepStation::within)) card_s += leg.service_s;
    const bool works = leg.station == job.station(StepStation::processors);
    (works ? work_s : whole_s) += std::max(leg.service_s, leg.alone_s);
    work_s += leg.work.service_s;
  }
  const net::LinkSpec& link = between ? job.mesh.between : job.mesh.within;
  const double senders = between ? static_cast<double>(job.mesh.workers_per_host) : 1;
  const double frame_s = card_s + seconds(link.delay) + job.costs.exchange.hop_s;
  return {.kind = Kind::transfer,
          .bytes = card_s * link.bits_per_second / 8 / senders,
          .result_s = std::max(0.0, std::max(whole_s, work_s) - frame_s)};
}

/// The actions, and the time that the worker computes in between.
class ActionList final : public TransferList {
 public:
  explicit ActionList(const TimedJob& job) : job_(job) {}

  void add(PlannedClock& clock, const WorkerAction& action) {
    add_computing(clock);
    actions_.push_back(action);
  }
  void add_computing(PlannedClock& clock) {
    const double now = clock.moments().last();
    if (now > computed_) actions_.push_back({.kind = Kind::compute, .seconds = now - computed_});
    computed_ = now;
  }
  std::vector<WorkerAction> take() { return std::exchange(actions_, {}); }

  Stations::Ticket begin(PlannedClock& clock, const Legs& legs) override {
    add(clock, transfer_of(job_, legs));
    return transfers_++;
  }
  void wait(PlannedClock& clock, Stations::Ticket ticket) override {
    add(clock, {.kind = Kind::await_transfer, .later = transfers_ - 1 - ticket});
  }

 private:
  const TimedJob& job_;
  std::vector<WorkerAction> actions_;
  std::size_t transfers_ = 0;
  double computed_ = 0;  ///< all before is in the actions
};

/// Writes down what it is asked for.
class WrittenLink final : public worker::ServerLink {
 public:
  WrittenLink(PlannedClock& clock, ActionList& actions) : clock_(clock), actions_(actions) {}

  void push(UnitId unit, std::uint64_t /*step*/, ConstElements /*gradient*/, std::size_t micro) override {
    add({.kind = Kind::push, .unit = unit, .micro = micro});
  }
  void push_pull(UnitId unit, std::uint64_t /*step*/, ConstElements /*gradient*/, Elements /*into*/) override {
    add({.kind = Kind::push, .unit = unit, .pulls = true});
  }
  void pull(UnitId unit, std::uint64_t version, Elements /*into*/, bool /*start_up*/) override {
    add({.kind = Kind::pull, .unit = unit, .after_update = version > step_});
  }
  void wait(UnitId unit, std::uint64_t /*version*/) override { add({.kind = Kind::await_values, .unit = unit}); }
  void wait_acknowledged(UnitId unit) override { add({.kind = Kind::await_pushes, .unit = unit}); }
  /// The step's communication has been started.
  void progress() override {
    actions_.add_computing(clock_);
    ++step_;
  }
  Nanoseconds waited() const override { return {}; }

 private:
  void add(const WorkerAction& action) { actions_.add(clock_, action); }

  PlannedClock& clock_;
  ActionList& actions_;
  std::uint64_t step_ = 0;
};

/// As well for tables, as worker/exchange/tables/served_tables.cpp asks servers. Batches have no keys.
class WrittenTables final : public worker::Tables {
 public:
  WrittenTables(const TimedJob& job, PlannedClock& clock, ActionList& actions)
      : job_(job), clock_(clock), actions_(actions), here_(job.work.rows.size()) {}

  void fetch(std::span<const worker::KeyBatch> /*keys*/, Step step, std::size_t, worker::RowUse) override {
    ask(step, false);
  }
  void fetch_ahead(std::span<const worker::KeyBatch> /*keys*/, Step step) override { ask(step, true); }
  bool begin(Step step) override {
    here_.assign(here_.size(), false);
    return step.index < asked_;
  }
  worker::TableView view(TableId, Range) override { return {}; }
  /// A played job has too few steps to fill a lookahead of more than two.
  void acquire(TableId table) override {
    const std::size_t later = job_.job.table_lookahead > 1 ? 1 : 0;
    if (!here_[table]) add(table, {.kind = Kind::await_values, .later = later});
    here_[table] = true;
  }
  void grad_ready(TableId table) override { add(table, {.kind = Kind::push}); }
  void finish(Step) override {}
  void begin_updates() override {
    if (job_.job.recovery != "both" || !optim::keeps_old_rows(job_.job)) return;
    for (TableId table = 0; table < here_.size(); ++table) add(table, {.kind = Kind::await_pushes});
  }
  std::vector<optim::TablePart> save(std::uint64_t) override { return {}; }
  worker::TrainedBatches trained(TableId) const override { return {}; }
  void predict(const worker::KeyCounts&, worker::Prediction&) const override {}

 private:
  void ask(Step step, bool ahead) {
    asked_ = step.index + 1;
    for (TableId table = 0; table < here_.size(); ++table) add(table, {.kind = Kind::pull, .after_update = ahead});
  }
  void add(TableId table, WorkerAction action) {
    action.unit = job_.work.layout.units.size() + table;
    actions_.add(clock_, action);
  }

  const TimedJob& job_;
  PlannedClock& clock_;
  ActionList& actions_;
  std::uint64_t asked_ = 0;  ///< steps whose rows were asked for
  std::vector<bool> here_;   ///< by table: an earlier micro-batch has waited for the step's rows
};

}  // namespace

/// The first step has no update before it, and asks for the rows of several steps.
std::vector<WorkerAction> worker_actions(const TimedJob& job, const ComputePace& pace) {
  ActionList actions(job);
  Stations unused(0);
  const auto worker = make_planned_worker(
      job, 0, pace, unused,
      {.make_link = [&](PlannedClock& clock) { return std::make_unique<WrittenLink>(clock, actions); },
       .make_tables = [&](PlannedClock& clock) { return std::make_unique<WrittenTables>(job, clock, actions); },
       .transfers = &actions});
  for (std::size_t step = 0; step < 2; ++step) {
    actions.take();
    worker->begin_step();
    for (std::size_t micro = 0; micro < job.work.micro_batches; ++micro) {
      worker->forward();
      worker->backward(micro);
    }
    worker->finish_step();
    actions.add_computing(worker->clock());
  }
  return actions.take();
}

}  // namespace psring::bench
