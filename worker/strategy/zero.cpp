#include <algorithm>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/worker/strategy/gradient_shards.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/mean_scatter.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/parameter_window.h>
#include <psring/worker/strategy/shard_groups.h>
#include <psring/worker/strategy/shared_units.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>
#include <psring/worker/strategy/workers_only.h>

namespace psring::worker {
namespace {

using ring::Collective;
using ring::Parts;
using ring::Work;

/// What each owner has of one unit.
Parts ranges_of(const Partition& unit) {
  Parts parts;
  for (std::size_t owner = 0; owner < unit.owners(); ++owner) parts.push_back({unit.range(owner)});
  return parts;
}

/// What the stages share: each rank owns a range of every unit, keeps its optimizer state, and updates it. Units are
/// cut among the owners of a shard group, which are all workers where nothing else is said.
class Zero : public WorkersOnly {
 public:
  void begin_step(Step step) override { scatter_.begin_step(step); }
  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }

 protected:
  explicit Zero(const Context& context)
      : WorkersOnly(context),
        groups_(context),
        scatter_(context_, groups_.owners()),
        optimizer_(context.optimizer, context.layout, context.memory, &groups_.owners(), context.device) {}

  ring::ProcessGroup& owners() const { return groups_.owners(); }
  void account() override {
    WorkersOnly::account();
    groups_.account();
  }
  /// What this rank owns, where it is the one to save it.
  std::vector<optim::StatePart> save_owned(const std::function<ConstElements(UnitId, Range)>& parameters) {
    if (!groups_.saves()) return {};
    return optimizer_.save(owners().rank(), owners().size(), parameters);
  }
  std::size_t units() const { return context_.layout.units.size(); }
  Elements owned(UnitId unit, Elements of) const { return of.part(optimizer_.owned(unit)); }
  /// So many gathers of all trained parameters, and of reductions among the owners, one for each micro-batch where
  /// several are reduced by themselves; what is owned goes to the replicas once.
  Prediction predict_step(std::size_t gathers, std::size_t reductions, std::span<const Range> gathered,
                          std::span<const Range> reduced) const {
    Prediction sum{.worker_sends = 0, .worker_receives = 0, .same_bits = groups_.sums_in_rank_order(reductions > 1)};
    for (std::size_t i = 0; i < gathers; ++i)
      for (const Range call : gathered) {
        std::size_t elements = 0;
        for (UnitId unit = call.begin; unit < call.end; ++unit) elements += context_.layout.trained_elements(unit);
        predict_call(owners(), Collective::all_gather, elements, context_.layout.parameter_type,
                     owners_of(context_.layout, call), sum);
      }
    for (std::size_t i = 0; i < reductions; ++i)
      for (const Range call : reduced) scatter_.predict(call, sum);
    if (groups_.replicas() == nullptr) return sum;
    for (const UnitId unit : context_.layout.trained())
      predict_call(*groups_.replicas(), Collective::all_reduce, context_.layout.partition(unit).share(),
                   context_.layout.gradient_type, {}, sum);
    return sum;
  }
  std::vector<Range> one_by_one() const {
    std::vector<Range> each;
    for (const UnitId unit : context_.layout.trained()) each.push_back({unit, unit + 1});
    return each;
  }

  ShardGroups groups_;
  MeanScatter scatter_;
  LocalOptimizer optimizer_;
};

/// Stages 1 and 2: parameters are whole. After an update each owner's range goes to all; who needs a unit waits for it.
class WholeParameters : public Zero {
 public:
  void start() override {
    if (context_.rank == 0) units_.initialise(context_);
    optimizer_.start(context_);
    broadcast(units_.parameters());
  }

  void acquire(UnitId unit, Pass pass) override {
    if (pass != Pass::forward || !context_.layout.units[unit].trained) return;
    for (Gather& gather : gathers_)
      if (gather.units.contains({unit, unit + 1})) wait(gather.work);
  }

  void quiesce() override {
    for (Gather& gather : gathers_) wait(gather.work);
    WorkersOnly::quiesce();
  }

  std::optional<std::vector<optim::StatePart>> state() override {
    return save_owned(
        [this](UnitId unit, Range range) -> ConstElements { return context_.units[unit].parameters.part(range); });
  }

 protected:
  WholeParameters(const Context& context, WholeUnits::Gradients gradients)
      : Zero(context), units_(context, gradients) {}

  /// In forward order: the first are needed first.
  void gather(std::vector<Range> groups) {
    std::sort(groups.begin(), groups.end());
    gathers_.clear();
    for (const Range group_of : groups)
      gathers_.push_back(
          {group_of, owners().all_gather(units_.parameters(group_of), owners_of(context_.layout, group_of))});
  }

  WholeUnits units_;

 private:
  struct Gather {
    Range units;
    Work work;
  };
  std::vector<Gather> gathers_;
};

/// Optimizer state by owner: gradients are whole, too, and leave in buckets as in ddp.
class Zero1 final : public WholeParameters {
 public:
  Zero1(const Context& context, const JobOptions& job)
      : WholeParameters(context, WholeUnits::Gradients::whole),
        overlap_(job.overlap),
        bucketer_(make_bucketer(context.layout, job)) {}

  void begin_step(Step step) override {
    Zero::begin_step(step);
    bucketer_.begin_step();
    reductions_.clear();
    averaged_ = 0;
  }

  void grad_ready(UnitId unit, Micro micro) override {
    if (!micro.last) return;
    ready_.add(unit);
    const std::size_t ready = bucketer_.ready(unit);
    if (!overlap_) return;
    launch(ready);
    while (averaged_ < reductions_.size() &&
           groups_.comes_next(reductions_[averaged_], reductions_.size() - averaged_)) {
      wait(reductions_[averaged_]);
      average_next();
    }
    groups_.advance();
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    launch(bucketer_.buckets().size());
    while (averaged_ < reductions_.size()) {
      wait(reductions_[averaged_]);
      average_next();
    }
    groups_.drain([this](Work& work) { wait(work); });
    std::vector<UnitBuffers> mine(units());
    for (const UnitId unit : context_.layout.trained())
      mine[unit] = {owned(unit, context_.units[unit].parameters), owned(unit, context_.units[unit].gradients)};
    optimizer_.update_all(step, mine);
    gather(bucketer_.buckets());
    account();
  }

  Prediction predict() const override {
    Prediction sum = predict_step(1, 1, bucketer_.buckets(), bucketer_.buckets());
    sum.worker_memory = worker_memory(context_, {.optimizer = context_.layout.owners}, scatter_.received_bytes());
    return sum;
  }

 private:
  void launch(std::size_t until) {
    while (reductions_.size() < until) {
      const Range bucket = bucketer_.buckets()[reductions_.size()];
      reductions_.push_back(scatter_.start(bucket, units_.gradients(bucket), 0));
    }
  }
  /// The next bucket is reduced among its owners. A range of each unit is this rank's: they do not lie together.
  void average_next() {
    const Range bucket = bucketer_.buckets()[averaged_++];
    for (UnitId unit = bucket.begin; unit < bucket.end; ++unit)
      if (context_.layout.units[unit].trained) groups_.average(owned(unit, context_.units[unit].gradients));
  }

  const bool overlap_;
  ring::Bucketer bucketer_;
  std::vector<Work> reductions_;  ///< of this step's buckets, in their order
  std::size_t averaged_ = 0;      ///< of them, on their way to the replicas or there
};

/// Gradients by owner, too.
class Zero2 final : public WholeParameters {
 public:
  Zero2(const Context& context, const JobOptions& job)
      : WholeParameters(context, WholeUnits::Gradients::none),
        micros_(job.accumulate),
        gradients_(context_, groups_, scatter_, [this](Work& work) { wait(work); }) {}

  bool adds_up() const override { return false; }

  void acquire(UnitId unit, Pass pass) override {
    WholeParameters::acquire(unit, pass);
    if (pass == Pass::backward) gradients_.open(unit);
  }

  void grad_ready(UnitId unit, Micro micro) override {
    if (micro.last) ready_.add(unit);
    gradients_.reduce(unit, micro);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    gradients_.drain();
    std::vector<UnitBuffers> mine(units());
    for (const UnitId unit : context_.layout.trained())
      mine[unit] = {owned(unit, context_.units[unit].parameters), gradients_.owned(unit)};
    optimizer_.update_all(step, mine);
    gather(one_by_one());
    account();
  }

  Prediction predict() const override {
    Prediction sum = predict_step(1, micros_, one_by_one(), one_by_one());
    const std::size_t most = GradientWindow::Replay::most_bytes(context_.layout, context_.backward_layers, micros_);
    const std::size_t n = context_.layout.owners;
    sum.worker_memory = worker_memory(context_, {.gradients = n, .optimizer = n}, most + scatter_.received_bytes());
    return sum;
  }

 private:
  const std::size_t micros_;
  GradientShards gradients_;
};

/// Parameters by owner, too: a unit is whole from before it is used until after, gathered anew for each pass.
class Zero3 final : public Zero {
 public:
  Zero3(const Context& context, const JobOptions& job)
      : Zero(context),
        micros_(job.accumulate),
        gradients_(context_, groups_, scatter_, [this](Work& work) { wait(work); }),
        gathers_(units()),
        parameters_(context_, job,
                    {.fetch = [this](UnitId unit, Elements whole) { gather(unit, whole); },
                     .wait =
                         [this](UnitId unit) {
                           for (Work& work : gathers_[unit]) wait(work);
                         }}) {
    for (UnitId unit = 0; unit < units(); ++unit)
      shards_.push_back(
          context.buffer(context.layout.parameter_bytes(unit) / context.layout.owners, Category::parameters, nullptr));
  }

  bool adds_up() const override { return false; }

  void start() override {
    for (UnitId unit = 0; unit < units(); ++unit) context_.initialise(unit, optimizer_.owned(unit), shard(unit));
    optimizer_.start(context_);
    broadcast({});
  }

  void begin_step(Step step) override {
    Zero::begin_step(step);
    parameters_.drop_all();
    training_ = true;
  }

  void acquire(UnitId unit, Pass pass) override {
    parameters_.acquire(unit, pass);
    if (pass == Pass::backward) gradients_.open(unit);
  }
  void release(UnitId unit, Pass pass) override { parameters_.release(unit, pass, training_); }

  void grad_ready(UnitId unit, Micro micro) override {
    if (micro.last) ready_.add(unit);
    gradients_.reduce(unit, micro);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    gradients_.drain();
    std::vector<UnitBuffers> mine(units());
    for (const UnitId unit : context_.layout.trained()) mine[unit] = {shard(unit), gradients_.owned(unit)};
    optimizer_.update_all(step, mine);
    account();
    training_ = false;
  }

  void quiesce() override {
    parameters_.drop_all();
    WorkersOnly::quiesce();
  }

  std::optional<std::vector<optim::StatePart>> state() override {
    return save_owned([this](UnitId unit, Range) -> ConstElements { return shard(unit); });
  }

  Prediction predict() const override {
    Prediction sum = predict_step(0, micros_, {}, one_by_one());
    for (const UnitId unit : parameters_.fetches())
      predict_call(owners(), Collective::all_gather, context_.layout.units[unit].elements,
                   context_.layout.parameter_type, ranges_of(context_.layout.partition(unit)), sum);
    const std::size_t n = context_.layout.owners;
    sum.worker_memory = worker_memory(context_, {n, n, n}, parameters_.most_bytes() + scatter_.received_bytes());
    return sum;
  }

 private:
  Elements shard(UnitId unit) { return shards_[unit].elements(context_.layout.parameter_type); }

  void gather(UnitId unit, Elements whole) {
    copy(shard(unit), owned(unit, whole));
    if (training_) {
      gathers_[unit] = {owners().all_gather(whole, ranges_of(context_.layout.partition(unit)))};
      return;
    }
    // To evaluate, and to save: control, as all broadcasts are.
    gathers_[unit].clear();
    const Partition partition = context_.layout.partition(unit);
    for (std::size_t owner = 0; owner < partition.owners(); ++owner) {
      const Range range = partition.range(owner);
      gathers_[unit].push_back(owners().broadcast(whole.part(range), owner));
    }
  }

  const std::size_t micros_;
  bool training_ = false;  ///< within a step
  GradientShards gradients_;
  std::vector<Buffer> shards_;
  std::vector<std::vector<Work>> gathers_;  ///< by unit: the newest
  ParameterWindow parameters_;
};

/// The same where owners share memory: parameters lie there whole, each owner updates its range in place, and all read
/// them there. Nothing is gathered. A range is not written while it is read: an owner updates once all gradients are
/// reduced, which are those of passes that are over at all; and a step begins once all owners have updated.
class Zero3InPlace final : public Zero {
 public:
  Zero3InPlace(const Context& context, const JobOptions& job)
      : Zero(context),
        micros_(job.accumulate),
        gradients_(context_, groups_, scatter_, [this](Work& work) { wait(work); }),
        parameters_(context_, owners()) {}

  bool adds_up() const override { return false; }

  void start() override {
    for (UnitId unit = 0; unit < units(); ++unit) context_.initialise(unit, optimizer_.owned(unit), shard(unit));
    optimizer_.start(context_);
    broadcast({});
    updated_ = owners().barrier();
  }

  void acquire(UnitId unit, Pass pass) override {
    wait(updated_);
    if (pass == Pass::backward) gradients_.open(unit);
  }

  void grad_ready(UnitId unit, Micro micro) override {
    if (micro.last) ready_.add(unit);
    gradients_.reduce(unit, micro);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    gradients_.drain();
    std::vector<UnitBuffers> mine(units());
    for (const UnitId unit : context_.layout.trained()) mine[unit] = {shard(unit), gradients_.owned(unit)};
    optimizer_.update_all(step, mine);
    updated_ = owners().barrier();
    account();
  }

  void quiesce() override {
    wait(updated_);
    WorkersOnly::quiesce();
  }

  std::optional<std::vector<optim::StatePart>> state() override {
    return save_owned([this](UnitId unit, Range) -> ConstElements { return shard(unit); });
  }

  Prediction predict() const override {
    Prediction sum = predict_step(0, micros_, {}, one_by_one());
    const std::size_t n = context_.layout.owners;
    const std::size_t most = GradientWindow::Replay::most_bytes(context_.layout, context_.backward_layers, micros_);
    sum.worker_memory = worker_memory(context_, {n, n, n}, most + scatter_.received_bytes());
    return sum;
  }

 private:
  Elements shard(UnitId unit) const { return owned(unit, context_.units[unit].parameters); }

  const std::size_t micros_;
  GradientShards gradients_;
  SharedUnits parameters_;
  Work updated_;  ///< complete once all owners have updated
};

}  // namespace

std::unique_ptr<Strategy> make_zero(int stage, const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  if (stage == 1) return std::make_unique<Zero1>(context, job);
  if (stage == 2) return std::make_unique<Zero2>(context, job);
  if (job.share_host_parameters) return std::make_unique<Zero3InPlace>(context, job);
  return std::make_unique<Zero3>(context, job);
}

}  // namespace psring::worker
