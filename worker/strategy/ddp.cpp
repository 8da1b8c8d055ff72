#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/common/proc/job.h>
#include <psring/ring/bucketer.h>
#include <psring/worker/strategy/exposure.h>
#include <psring/worker/strategy/local_optimizer.h>
#include <psring/worker/strategy/ready_units.h>
#include <psring/worker/strategy/strategies.h>
#include <psring/worker/strategy/whole_units.h>

namespace psring::worker {
namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;

/// What both kinds share: all hold all parameters, begin with rank 0's, and update them alike.
class DataParallel : public Strategy {
 public:
  DataParallel(const Context& context, const std::string& link, bool one_by_one)
      : context_(context),
        units_(context),
        exposure_(link, one_by_one, context.clock),
        optimizer_(context.optimizer, context.layout, context.memory),
        ready_(context.layout) {
    check(context.group != nullptr, "data-parallel workers need a group");
  }

  void start() override {
    if (context_.rank == 0) units_.initialise(context_);
    group().broadcast(units_.parameters(), 0).wait();
    share_buffers();
    group().account();
  }

  void grad_ready(UnitId unit, Micro micro) final {
    if (!micro.last) return;
    ready_.add(unit);
    reduce(unit);
  }

  void finish_step(Step step) override {
    ready_.finish(step);
    const Moment backward_ended = context_.clock.now();
    reduce_rest();
    exposure_.end_step(backward_ended);
    if (optimizer_.whole_step()) {
      wait_all();
      optimizer_.update_all(step, context_.units);
    } else {
      wait_and_update(step);
    }
    group().account();
  }

  /// Parameters are current after every step; but what the others read of ours is counted once they have read it.
  void quiesce() override {
    share_buffers();
    group().barrier().wait();
    group().account();
  }

  /// They are not read while training, so this gives what rank 0's buffers before each forward would.
  bool shares_buffers() const override { return true; }

  Nanoseconds waited() const override { return waited_; }

 protected:
  ring::ProcessGroup& group() const { return *context_.group; }
  /// The unit's gradient is complete.
  virtual void reduce(UnitId /*unit*/) {}
  /// Gradients that are not on their way yet.
  virtual void reduce_rest() = 0;
  virtual void wait_all() = 0;
  virtual void wait_and_update(Step step) = 0;

  void wait(ring::Work& work) {
    const Moment start = context_.clock.now();
    work.wait();
    waited_ += context_.clock.now() - start;
  }
  void update(UnitId unit, Step step) { optimizer_.update(unit, step, context_.units[unit]); }
  ring::Work all_reduce(std::span<float> gradient) {
    exposure_.launched(cost(gradient.size()));
    return group().all_reduce(gradient, ring::ReduceOp::Kind::mean);
  }
  ring::Cost cost(std::size_t elements) const { return group().predict(ring::Collective::all_reduce, elements, {}); }
  Prediction predict_none() const {
    return {.exposed_s = exposure_.of_a_step(), .same_bits = group().sums_in_rank_order()};
  }
  /// Adds what an all-reduce of so many elements moves.
  void predict_one(std::size_t elements, Prediction& sum) const {
    const ring::Cost moved = cost(elements);
    sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
    sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
  }

  const Context context_;
  WholeUnits units_;
  Exposure exposure_;

 private:
  void share_buffers() {
    if (!context_.buffers.empty()) group().broadcast(context_.buffers, 0).wait();
  }

  LocalOptimizer optimizer_;
  ReadyUnits ready_;
  Nanoseconds waited_{0};
};

/// The way that is thought of first: after backward, one all-reduce a tensor, one after the other.
class Naive final : public DataParallel {
 public:
  Naive(const Context& context, const JobOptions& job) : DataParallel(context, job.link, true) {}

  void begin_step(Step /*step*/) override { exposure_.begin_step(); }

  Prediction predict() const override {
    Prediction sum = predict_none();
    for (const UnitLayout& unit : context_.layout.units)
      for (const TensorSlot& tensor : unit.tensors) predict_one(tensor.spec.elements(), sum);
    return sum;
  }

 private:
  void reduce_rest() override {
    for (UnitId unit = 0; unit < context_.units.size(); ++unit)
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
class Overlapped final : public DataParallel {
 public:
  Overlapped(const Context& context, const JobOptions& job)
      : DataParallel(context, job.link, false),
        overlap_(job.overlap),
        bucketer_(unit_bytes(context.layout), job.bucket_bytes, kFirstBucketBytes,
                  job.bucket_order == "forward" ? ring::BucketOrder::forward : ring::BucketOrder::reverse) {}

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

 private:
  static std::vector<std::size_t> unit_bytes(const Layout& layout) {
    std::vector<std::size_t> bytes;
    for (const UnitLayout& unit : layout.units) bytes.push_back(unit.elements * sizeof(float));
    return bytes;
  }

  void launch(std::size_t until) {
    while (works_.size() < until) works_.push_back(all_reduce(units_.gradients(bucketer_.buckets()[works_.size()])));
  }

  void reduce(UnitId unit) override {
    const std::size_t ready = bucketer_.ready(unit);
    if (!overlap_) return;
    launch(ready);
    for (ring::Work& work : works_) work.done();  // goes on with those that are under way
  }
  void reduce_rest() override { launch(bucketer_.buckets().size()); }
  void wait_all() override {
    for (ring::Work& work : works_) wait(work);
  }
  void wait_and_update(Step step) override {
    for (std::size_t i = 0; i < works_.size(); ++i) {
      wait(works_[i]);
      for (UnitId unit = bucketer_.buckets()[i].begin; unit < bucketer_.buckets()[i].end; ++unit) update(unit, step);
    }
  }

  const bool overlap_;
  ring::Bucketer bucketer_;
  std::vector<ring::Work> works_;  ///< of this step's buckets, in their order
};

}  // namespace

std::unique_ptr<Strategy> make_ddp_naive(const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  return std::make_unique<Naive>(context, job);
}

std::unique_ptr<Strategy> make_ddp(const Spec& spec, const Context& context, const JobOptions& job) {
  spec.allow_only({});
  return std::make_unique<Overlapped>(context, job);
}

}  // namespace psring::worker
