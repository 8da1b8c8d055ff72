#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <psring/bench/predict/planned_worker.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/device/device.h>
#include <psring/optim/device_applier.h>
#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/servers/server_link.h>
#include <psring/worker/walk.h>

namespace psring::bench {
namespace {

using worker::Pass;

/// A rule of which only the size of its state matters.
class PlannedRule final : public optim::Optimizer {
 public:
  explicit PlannedRule(std::size_t slots) : slots_(slots) {}
  std::size_t slots() const override { return slots_; }
  void apply(const optim::Update&, std::span<const float>, std::span<const float>, State,
             std::span<float>) const override {}
  std::optional<optim::Formula> formula(const optim::Update&) const override { return optim::Formula(); }

 private:
  const std::size_t slots_;
};

/// An update takes the time of its elements.
class PlannedApplier final : public optim::DeviceApplier {
 public:
  PlannedApplier(const TimedJob& job, PlannedClock& clock) : job_(job), clock_(clock) {}
  void apply(const optim::Formula&, const optim::DeviceRange& range) override {
    clock_.pass(job_.update_s(static_cast<double>(range.parameters.size())));
  }
  std::span<const double> square_sums(std::span<const ConstElements>) override { return {}; }

 private:
  const TimedJob& job_;
  PlannedClock& clock_;
};

/// Memory that has addresses alone. Work on it takes no time.
class PlannedDevice final : public Device, public worker::Planned {
 public:
  PlannedDevice(const TimedJob& job, PlannedClock& clock, const PlannedLinks& links)
      : job_(job), clock_(clock), links_(links) {}

  std::unique_ptr<optim::DeviceApplier> make_applier() override {
    return std::make_unique<PlannedApplier>(job_, clock_);
  }
  std::unique_ptr<worker::ServerLink> make_link() override { return links_.make_link(clock_); }
  std::unique_ptr<worker::Tables> make_tables() override { return links_.make_tables(clock_); }

  std::string name() const override { return "planned"; }
  std::byte* allocate(std::size_t bytes, Category) override {
    return reinterpret_cast<std::byte*>(std::exchange(next_, next_ + bytes));
  }
  void free(std::byte*) noexcept override {}
  MemoryUse memory() const override { return {}; }
  void book(MemoryLedger&) override {}
  std::shared_ptr<std::byte> allocate_pinned(std::size_t) override { return nullptr; }
  std::shared_ptr<void> pin(std::span<std::byte>) override { return nullptr; }
  std::unique_ptr<CopyQueue> make_copy_queue() override { return nullptr; }
  void copy_bytes(const void*, void*, std::size_t) override {}
  Mark mark() override { return 0; }
  void wait(Mark) override {}
  void check_after_wait(std::function<void()>) override {}
  Nanoseconds stalled() override { return {}; }
  void report_to(Events&) override {}
  void finish() override {}
  void use_graphs(bool) override {}
  std::size_t graphs_launched() const override { return 0; }
  void copy(ConstElements, Elements) override {}
  void multiply(Elements, float) override {}
  void add(Elements, ConstElements) override {}
  void subtract(Elements, ConstElements) override {}
  void round(DType, Elements) override {}
  void clear(Elements) override {}

 private:
  bool is_shown() const override { return false; }
  void begin_stretch(std::string, bool) override {}
  void end_stretch() override {}
  void drop_stretch() noexcept override {}

  const TimedJob& job_;
  PlannedClock& clock_;
  const PlannedLinks links_;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

/// A pass of a layer takes its time, and then the sums of the tensor group, for each of which the worker waits.
class PlannedNetwork final : public worker::Network {
 public:
  PlannedNetwork(const TimedJob& job, PlannedClock& clock, const ComputePace& pace, ring::ProcessGroup* tensor)
      : Network(*job.work.stage, {}), work_(job.work), clock_(clock), pace_(pace), tensor_(tensor) {}

  worker::Matrix input() override { return {}; }
  std::span<std::int32_t> targets() override { return {}; }
  ConstElements output_of(std::size_t) const override { return {}; }
  void forward_layer(std::size_t layer, std::span<const ConstElements>, bool,
                     std::span<const std::span<float>>) override {
    pass(work_.layers[layer].forward_s, work_.layers[layer].forward_sums);
  }
  worker::LossResult evaluate() override { return {}; }
  std::optional<worker::LossResult> loss(float) override {
    sum(work_.loss_sums);
    return worker::LossResult();
  }
  worker::LossResult loss_after() override { return {}; }
  void backward_layer(std::size_t layer, std::span<const ConstElements>,
                      std::span<const worker::BoundGradient> gradients) override {
    pass(work_.layers[layer].backward_s, work_.layers[layer].backward_sums);
    for (const worker::BoundGradient& gradient : gradients) *gradient.fresh = false;
  }

 private:
  void pass(double seconds, std::span<const double> sums) {
    clock_.pass(seconds * pace_.factor + pace_.more_s);
    sum(sums);
  }
  void sum(std::span<const double> vectors) {
    for (const double bytes : vectors)
      if (tensor_ != nullptr && tensor_->size() > 1)
        tensor_
            ->all_reduce(
                std::span<float>(static_cast<float*>(nullptr), static_cast<std::size_t>(bytes / sizeof(float))),
                ring::ReduceOp::Kind::sum)
            .wait();
  }

  const Workload& work_;
  PlannedClock& clock_;
  const ComputePace pace_;
  ring::ProcessGroup* const tensor_;
};

/// The job as its strategy sees it. PlannedGroup compresses; a worker of a mesh has no virtual workers.
JobOptions planned_job(JobOptions job) {
  job.compress = "none";
  job.virtual_workers = 1;
  job.accumulate_at = "local";
  job.share_host_parameters = job.local_reduce = false;
  return job;
}

std::vector<std::size_t> all_ranks(std::size_t workers) {
  std::vector<std::size_t> ranks(workers);
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  return ranks;
}

/// The shard group of each worker: consecutive ranks (--shard-group).
std::vector<std::size_t> shard_groups(const TimedJob& job) {
  const std::size_t owners = job.work.layout.owners;
  if (job.kind.stage == 0 || !job.kind.ring || owners == job.job.data_workers()) return {};
  std::vector<std::size_t> groups = all_ranks(job.job.workers);
  for (std::size_t& group : groups) group /= owners;
  return groups;
}

/// The worker's parts, as worker/role.cpp puts them together.
class TimedWorker final : public PlannedWorker {
 public:
  TimedWorker(const TimedJob& job, std::size_t stage, const ComputePace& pace, Stations& stations,
              const PlannedLinks& links)
      : job_(job),
        plain_(planned_job(job_.job)),
        rank_(stage * plain_.tensor),
        clock_(stations, links.transfers),
        device_(job_, clock_, links),
        units_(job_.work.layout.units.size()),
        rule_(job_.costs.state_values),
        group_(make_group()),
        groups_(make_groups()),
        plan_(make_plan()),
        world_(make_world()),
        shared_(plan_, world_, job_.work.shared, false),
        strategy_(job_.kind.make(plan_, world_)),
        network_(job_, clock_, pace, groups_ ? groups_->tensor.get() : nullptr),
        walk_(plan_, world_, *job_.work.flat, network_, *strategy_, &shared_) {}

  PlannedClock& clock() override { return clock_; }
  /// Without Strategy::start: initial values are not part of a step. Rows are asked for as worker::RowBatches does.
  void begin_step() override {
    const worker::Step step{step_};
    strategy_->begin_step(step);
    worker::Tables* const tables = strategy_->abilities().tables;
    if (tables != nullptr && !tables->begin(step)) {
      tables->fetch({}, step, 0, worker::RowUse::train);
      next_rows_ = step.index + 1;
    }
    walk_.begin_gradients();
  }
  void forward() override {
    walk_.go(Pass::forward, {}, [&](std::size_t layer) { walk_.forward_layer(layer, "forward", true, {}); });
  }
  void backward(std::size_t micro) override {
    const std::uint64_t last = step_ + plain_.table_lookahead;
    if (worker::Tables* const tables = strategy_->abilities().tables; tables != nullptr)
      for (; next_rows_ <= last; ++next_rows_) tables->fetch_ahead({}, {next_rows_});
    network_.loss(1);
    walk_.go(Pass::backward, {.index = micro, .last = micro + 1 == job_.work.micro_batches},
             [&](std::size_t layer) { walk_.backward_layer(layer); });
  }
  void sum_shared() override {
    if (job_.work.shared.empty()) return;
    shared_.sum();
    walk_.hand_over_shared({.index = job_.work.micro_batches - 1});
  }
  void finish_step() override { strategy_->finish_step({step_++}); }

 private:
  std::unique_ptr<ring::ProcessGroup> make_group() {
    if (!job_.kind.ring && !plain_.mesh().divides_model()) return nullptr;
    return make_timed_group(job_, clock_, all_ranks(plain_.workers), rank_, 1, units_);
  }
  std::optional<worker::MeshGroups> make_groups() const {
    if (!plain_.mesh().divides_model()) return std::nullopt;
    return worker::make_mesh_groups(*group_, plain_.mesh(), job_.work.sharing);
  }
  worker::Plan make_plan() {
    const Consistency consistency = parse_consistency(plain_.consistency, plain_.backup_workers);
    return {.job = plain_,
            .layout = job_.work.layout,
            .place = {.rank = {rank_}, .shard_groups = shard_groups(job_)},
            .mesh = plain_.mesh(),
            .data_rank = {0},
            .workers = plain_.data_workers(),
            .optimizer = {.rule = &rule_, .schedule = schedule_.get(), .master_copy = plain_.master_copy},
            .consistency = consistency,
            .unit_layers = job_.work.unit_layers,
            .backward_layers = job_.work.backward_layers};
  }
  worker::World make_world() {
    return {.memory = memory_,
            .clock = clock_,
            .events = events_,
            .device = &device_,
            .group = groups_ ? groups_->data.get() : group_.get(),
            .mesh = groups_ ? &*groups_ : nullptr,
            .units = units_};
  }

  const TimedJob job_;
  const JobOptions plain_;
  const std::size_t rank_;
  PlannedClock clock_;
  MemoryLedger memory_;
  Events events_{clock_};
  PlannedDevice device_;
  std::vector<worker::UnitBuffers> units_;
  const PlannedRule rule_;
  const std::unique_ptr<const optim::Schedule> schedule_ =
      optim::make_schedule(Spec::parse("--schedule", "constant"), 1);
  const std::unique_ptr<ring::ProcessGroup> group_;
  const std::optional<worker::MeshGroups> groups_;
  const worker::Plan plan_;
  const worker::World world_;
  worker::SharedTensors shared_;
  const std::unique_ptr<worker::Strategy> strategy_;
  PlannedNetwork network_;
  worker::Walk walk_;
  std::uint64_t step_ = 0;
  std::uint64_t next_rows_ = 0;  ///< the step whose rows are asked for next
};

}  // namespace

std::unique_ptr<PlannedWorker> make_planned_worker(const TimedJob& job, std::size_t stage, const ComputePace& pace,
                                                   Stations& stations, const PlannedLinks& links) {
  return std::make_unique<TimedWorker>(job, stage, pace, stations, links);
}

}  // namespace psring::bench
