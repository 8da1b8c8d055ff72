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

}  // namespace

struct PlannedWorker::State {
  State(const TimedJob& of, std::size_t stage, const ComputePace& pace, Stations& stations, const PlannedLinks& links)
      : job(of),
        plain(planned_job(job.job)),
        rank(stage * plain.tensor),
        clock(stations, links.transfers),
        device(job, clock, links),
        units(job.work.layout.units.size()),
        rule(job.costs.state_values),
        group(make_group()),
        groups(make_groups()),
        plan(make_plan()),
        world(make_world()),
        shared(plan, world, job.work.shared, false),
        strategy(job.kind.make(plan, world)),
        network(job, clock, pace, groups ? groups->tensor.get() : nullptr),
        walk(plan, world, *job.work.flat, network, *strategy, &shared) {}

  std::unique_ptr<PlannedGroup> make_group() {
    if (!job.kind.ring && !plain.mesh().divides_model()) return nullptr;
    return std::make_unique<PlannedGroup>(job, clock, all_ranks(plain.workers), rank, 1, units);
  }
  std::optional<worker::MeshGroups> make_groups() const {
    if (!plain.mesh().divides_model()) return std::nullopt;
    return worker::make_mesh_groups(*group, plain.mesh(), job.work.sharing);
  }
  worker::Plan make_plan() {
    return {.job = plain,
            .layout = job.work.layout,
            .place = {.rank = {rank}, .shard_groups = shard_groups(job)},
            .mesh = plain.mesh(),
            .data_rank = {0},
            .workers = plain.data_workers(),
            .optimizer = {.rule = &rule, .schedule = schedule.get(), .master_copy = plain.master_copy},
            .consistency = parse_consistency(plain.consistency, plain.backup_workers),
            .unit_layers = job.work.unit_layers,
            .backward_layers = job.work.backward_layers};
  }
  worker::World make_world() {
    return {.memory = memory,
            .clock = clock,
            .events = events,
            .device = &device,
            .group = groups ? groups->data.get() : group.get(),
            .mesh = groups ? &*groups : nullptr,
            .units = units};
  }

  const TimedJob job;
  const JobOptions plain;
  const std::size_t rank;
  PlannedClock clock;
  MemoryLedger memory;
  Events events{clock};
  PlannedDevice device;
  std::vector<worker::UnitBuffers> units;
  const PlannedRule rule;
  const std::unique_ptr<const optim::Schedule> schedule =
      optim::make_schedule(Spec::parse("--schedule", "constant"), 1);
  const std::unique_ptr<PlannedGroup> group;
  const std::optional<worker::MeshGroups> groups;
  const worker::Plan plan;
  const worker::World world;
  worker::SharedTensors shared;
  const std::unique_ptr<worker::Strategy> strategy;
  PlannedNetwork network;
  worker::Walk walk;
  std::uint64_t step = 0;
  std::uint64_t next_rows = 0;  ///< the step whose rows are asked for next
};

PlannedWorker::PlannedWorker(const TimedJob& job, std::size_t stage, const ComputePace& pace, Stations& stations,
                             const PlannedLinks& links)
    : state_(std::make_unique<State>(job, stage, pace, stations, links)) {}

PlannedWorker::~PlannedWorker() = default;

PlannedClock& PlannedWorker::clock() { return state_->clock; }

/// Without Strategy::start: initial values are not part of a step. Rows are asked for as worker::RowBatches does.
void PlannedWorker::begin_step() {
  const worker::Step step{state_->step};
  state_->strategy->begin_step(step);
  worker::Tables* const tables = state_->strategy->abilities().tables;
  if (tables != nullptr && !tables->begin(step)) {
    tables->fetch({}, step, 0, worker::RowUse::train);
    state_->next_rows = step.index + 1;
  }
  state_->walk.begin_gradients();
}

void PlannedWorker::forward() {
  state_->walk.go(Pass::forward, {},
                  [&](std::size_t layer) { state_->walk.forward_layer(layer, "forward", true, {}); });
}

void PlannedWorker::backward(std::size_t micro) {
  const std::uint64_t last = state_->step + state_->plain.table_lookahead;
  if (worker::Tables* const tables = state_->strategy->abilities().tables; tables != nullptr)
    for (; state_->next_rows <= last; ++state_->next_rows) tables->fetch_ahead({}, {state_->next_rows});
  state_->network.loss(1);
  state_->walk.go(Pass::backward, {.index = micro, .last = micro + 1 == state_->job.work.micro_batches},
                  [&](std::size_t layer) { state_->walk.backward_layer(layer); });
}

void PlannedWorker::sum_shared() {
  if (state_->job.work.shared.empty()) return;
  state_->shared.sum();
  state_->walk.hand_over_shared({.index = state_->job.work.micro_batches - 1});
}

void PlannedWorker::finish_step() { state_->strategy->finish_step({state_->step++}); }

}  // namespace psring::bench
