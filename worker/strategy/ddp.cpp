#include <algorithm>

#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/ring/bucketer.h>
#include <psring/worker/compressor.h>
#include <psring/worker/strategy/exposure.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/memory_formula.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>
#include <psring/worker/strategy/workers_only.h>

namespace psring::worker {
namespace {

/// What both kinds share: all hold all parameters, begin with rank 0's, and update them alike.
class DataParallel : public WorkersOnly {
 public:
  DataParallel(const Context& context, const std::string& link, bool one_by_one)
      : WorkersOnly(context),
        units_(context),
        exposure_(link, one_by_one, context.clock),
        optimizer_(context.optimizer, context.layout, context.memory, nullptr, context.device) {}

  void start() override {
    if (context_.rank == 0) units_.initialise(context_);
    optimizer_.start(context_);
    broadcast(units_.parameters());
    next_ = Step{context_.first_step};
  }

  Step first(Step /*planned*/) override { return {context_.first_step}; }

  std::optional<std::vector<optim::StatePart>> state() override { return save_share(optimizer_); }
  std::optional<Whole> whole_state() override {
    if (!next_) return std::nullopt;
    return Whole{*next_, optimizer_.save(0, 1, [this](UnitId unit, Range range) {
                   return ConstElements(context_.units[unit].parameters).part(range);
                 })};
  }

  void grad_ready(UnitId unit, Micro micro) final {
    if (!micro.last) return;
    ready_.add(unit);
    reduce(unit);
  }

  /// Parameters are current after every step.
  void finish_step(Step step) override {
    ready_.finish(step);
    const Moment backward_ended = context_.clock.now();
    reduce_rest();
    exposure_.end_step(backward_ended);
    if (optimizer_.whole_step() || context_.goes_on) {
      wait_all();
      // A device's queue goes on where a reduction was given up: what is whole is not to be updated with that.
      if (context_.goes_on && context_.device != nullptr) context_.device->wait(context_.device->mark());
      optimizer_.update_all(step, context_.units);
    } else {
      wait_and_update(step);
    }
    next_ = Step{step.index + 1};
    group().account();
  }

  optim::LossScaler loss_scaler() override { return optimizer_.loss_scaler(); }

 protected:
  /// The unit's gradient is complete.
  virtual void reduce(UnitId /*unit*/) {}
  /// Gradients that are not on their way yet.
  virtual void reduce_rest() = 0;
  virtual void wait_all() = 0;
  virtual void wait_and_update(Step step) = 0;

  void update(UnitId unit, Step step) { optimizer_.update(unit, step, context_.units[unit]); }
  ring::Work all_reduce(Elements gradient) {
    exposure_.launched(group().predict(ring::Collective::all_reduce, gradient.size(), {gradient.type()}));
    return group().all_reduce(gradient, ring::ReduceOp::Kind::mean);
  }
  Prediction predict_none() const {
    return {.worker_memory = worker_memory(context_, {}),
            .exposed_s = exposure_.of_a_step(),
            .same_bits = group().sums_in_rank_order(ring::Collective::all_reduce, {context_.layout.gradient_type})};
  }
  void predict_one(std::size_t elements, Prediction& sum) const {
    predict_call(ring::Collective::all_reduce, elements, context_.layout.gradient_type, {}, sum);
  }

  WholeUnits units_;
  Exposure exposure_;

 private:
  LocalOptimizer optimizer_;
  std::optional<Step> next_;  ///< that all parameters here are for; none before they are there
};

/// The way that is thought of first: after backward, one all-reduce a tensor, one after the other.
class Naive final : public DataParallel {
 public:
  Naive(const Context& context, const JobOptions& job) : DataParallel(context, job.link, true) {}

  void begin_step(Step /*step*/) override { exposure_.begin_step(); }

  Prediction predict() const override {
    Prediction sum = predict_none();
    for (const UnitId unit : context_.layout.trained())
      for (const TensorSlot& tensor : context_.layout.units[unit].tensors) predict_one(tensor.spec.elements(), sum);
    return sum;
  }

 private:
  void reduce_rest() override {
    for (const UnitId unit : context_.layout.trained())
      for (const TensorSlot& tensor : context_.layout.units[unit].tensors) {
        const auto gradient = context_.units[unit].gradients.subspan(tensor.offset, tensor.spec.elements());
        ring::Work work = all_reduce(gradient);
        wait(work);
      }
  }
  void wait_all() override {}
  void wait_and_update(Step step) override {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit) update(unit, step);
  }
};

/// Gradients leave in buckets while backward goes on; see Bucketer.
class Overlapped : public DataParallel {
 public:
  Overlapped(const Context& context, const JobOptions& job)
      : DataParallel(context, job.link, false), overlap_(job.overlap), bucketer_(make_bucketer(context.layout, job)) {}

  void begin_step(Step /*step*/) override {
    bucketer_.begin_step();
    works_.clear();
    exposure_.begin_step();
  }

  Prediction predict() const override {
    Prediction sum = predict_none();
    for (const Range bucket : bucketer_.buckets()) predict_one(units_.gradients(bucket).size(), sum);
    return sum;
  }

 protected:
  const std::vector<Range>& buckets() const { return bucketer_.buckets(); }

 private:
  /// A bucket's gradients leave; once that is done, `landed` makes them the mean of all.
  virtual ring::Work launch_one(std::size_t bucket) { return all_reduce(units_.gradients(buckets()[bucket])); }
  virtual void landed(std::size_t /*bucket*/) {}

  void launch(std::size_t until) {
    while (works_.size() < until) works_.push_back(launch_one(works_.size()));
  }
  void land(std::size_t bucket) {
    wait(works_[bucket]);
    landed(bucket);
  }

  void reduce(UnitId unit) override {
    const std::size_t ready = bucketer_.ready(unit);
    if (!overlap_) return;
    launch(ready);
    for (ring::Work& work : works_) work.done();  // goes on with those that are under way
  }
  void reduce_rest() override { launch(bucketer_.buckets().size()); }
  void wait_all() override {
    for (std::size_t i = 0; i < works_.size(); ++i) land(i);
  }
  void wait_and_update(Step step) override {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      land(i);
      for (UnitId unit = bucketer_.buckets()[i].begin; unit < bucketer_.buckets()[i].end; ++unit) update(unit, step);
    }
  }

  const bool overlap_;
  ring::Bucketer bucketer_;
  std::vector<ring::Work> works_;  ///< of this step's buckets, in their order
};

/// Buckets as a codec writes them: all workers gather the bytes of all, and each reads them and takes the mean.
class Compressed final : public Overlapped {
 public:
  Compressed(const Context& context, const JobOptions& job)
      : Overlapped(context, job),
        compressor_(*context.compressor),
        gathered_(context.buffer(context.workers * compressor_.encoded_bytes(), Category::communication,
                                 context.arena_for_codes(context.workers * compressor_.encoded_bytes()))) {
    std::size_t begin = 0;
    for (const Range bucket : buckets()) {
      const std::size_t bytes = bytes_of(bucket);
      places_.push_back({begin, begin + context.workers * bytes});
      begin = places_.back().end;
    }
  }

  void begin_step(Step step) override {
    Overlapped::begin_step(step);
    step_ = step.index;
  }

  Prediction predict() const override {
    Prediction sum = predict_none();
    sum.worker_memory[Category::communication] += gathered_.size_bytes();
    sum.exposed_s.reset();
    for (std::size_t b = 0; b < buckets().size(); ++b) {
      const ring::Cost moved = group().predict(ring::Collective::all_gather, places_[b].size(), {DType::u8}, parts(b));
      sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
      sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
    }
    return sum;
  }

 private:
  std::size_t bytes_of(Range units) const {
    std::size_t bytes = 0;
    for_each(units, [&](UnitId /*unit*/, Elements gradient) { bytes += compressor_.codec().bytes(gradient.size()); });
    return bytes;
  }
  /// Those that are trained.
  void for_each(Range units, const auto& body) const {
    for (UnitId unit = units.begin; unit < units.end; ++unit)
      if (context_.layout.units[unit].trained) body(unit, context_.units[unit].gradients);
  }
  ring::Parts parts(std::size_t bucket) const {
    const std::size_t bytes = places_[bucket].size() / context_.workers;
    ring::Parts list(context_.workers);
    for (std::size_t r = 0; r < context_.workers; ++r) list[r] = {{r * bytes, (r + 1) * bytes}};
    return list;
  }

  Elements gathered(std::size_t bucket) { return gathered_.elements(DType::u8).part(places_[bucket]); }

  ring::Work launch_one(std::size_t bucket) override {
    const Elements all = gathered(bucket);
    std::size_t at = context_.rank * (all.size() / context_.workers);
    for_each(buckets()[bucket], [&](UnitId unit, Elements gradient) {
      const ConstElements bytes = compressor_.encode(unit, step_, 0, gradient);
      copy(bytes, all.subspan(at, bytes.size()));
      at += bytes.size();
    });
    return group().all_gather(all, parts(bucket));
  }

  /// In rank order, as all sums.
  void landed(std::size_t bucket) override {
    const Elements all = gathered(bucket);
    const std::size_t each = all.size() / context_.workers;
    std::vector<Compressor::Written> written(context_.workers);
    std::size_t at = 0;
    for_each(buckets()[bucket], [&](UnitId unit, Elements gradient) {
      const std::size_t bytes = compressor_.codec().bytes(gradient.size());
      for (std::size_t r = 0; r < context_.workers; ++r) written[r] = {r, all.subspan(r * each + at, bytes)};
      compressor_.mean(unit, {0, gradient.size()}, step_, 0, written, gradient);
      at += bytes;
    });
  }

  Compressor& compressor_;
  Buffer gathered_;
  std::vector<Range> places_;  ///< of each bucket, the bytes of all workers
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_ddp_naive(const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  return std::make_unique<Naive>(context, job);
}

std::unique_ptr<Strategy> make_ddp(const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  if (context.compressor != nullptr) return std::make_unique<Compressed>(context, job);
  return std::make_unique<Overlapped>(context, job);
}

}  // namespace psring::worker
