#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <psring/common/proc/job.h>
#include <psring/optim/codec/power_sgd.h>
#include <psring/worker/exchange/averaging.h>
#include <psring/worker/state/error_feedback.h>

namespace psring::worker {
namespace {

/// The factors of one bucket, and the exchange of them that is under way.
struct Bucket {
  Range units;
  optim::PowerSgd codec;
  UnitLayout start_tensors;
  Elements first = {};
  Elements second = {};
  Elements start = {};
  std::vector<std::span<float>> values = {};  ///< by trained unit: the gradients, plus the residual if it is kept
  std::vector<std::span<float>> means = {};   ///< by trained unit: receive the approximated mean
  ring::Work work = {};                       ///< the all-reduce that was started last

  std::vector<std::span<const float>> read_values() const { return {values.begin(), values.end()}; }
};

constexpr std::size_t kAlignment = 64 / sizeof(float);  // of each vector of factors, in elements

std::size_t aligned(std::size_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

std::vector<Bucket> make_buckets(const Plan& plan, std::span<const Range> ranges, std::size_t rank) {
  std::vector<Bucket> buckets;
  for (const Range units : ranges) {
    std::vector<std::size_t> trained;
    for (UnitId unit = units.begin; unit < units.end; ++unit)
      if (plan.layout.units[unit].trained) trained.push_back(unit);
    optim::PowerSgd codec(plan.layout, trained, rank, plan.job.seed);
    UnitLayout start = codec.start_tensors();
    buckets.push_back({units, std::move(codec), std::move(start)});
  }
  return buckets;
}

class LowRankAllReduce final : public Averaging {
 public:
  LowRankAllReduce(const Plan& plan, const World& world, Workers& workers, std::span<const Range> ranges,
                   std::size_t rank)
      : plan_(plan), world_(world), group_(workers.group()), buckets_(make_buckets(plan, ranges, rank)) {
    std::size_t factors = 0;
    std::size_t starts = 0;
    for (const Bucket& bucket : buckets_) {
      factors += aligned(bucket.codec.first_elements()) + aligned(bucket.codec.second_elements());
      starts += bucket.codec.second_elements();
    }
    factors_ = world.buffer(factors * sizeof(float), Category::communication,
                            arena_for_codes(plan, world, factors * sizeof(float)));
    starts_ = world.buffer(starts * sizeof(float), Category::optimizer, nullptr);
    Elements factors_left = factors_.elements(DType::f32);
    Elements starts_left = starts_.elements(DType::f32);
    const auto take = [](Elements& left, std::size_t elements, std::size_t room) {
      return std::exchange(left, left.subspan(room, left.size() - room)).subspan(0, elements);
    };
    for (Bucket& bucket : buckets_) {
      const std::size_t first = bucket.codec.first_elements();
      const std::size_t second = bucket.codec.second_elements();
      bucket.first = take(factors_left, first, aligned(first));
      bucket.second = take(factors_left, second, aligned(second));
      bucket.start = take(starts_left, second, second);
      if (!plan.saved_values || !plan.saved_values(bucket.start_tensors, bucket.start.as<float>()))
        bucket.codec.begin(bucket.start.as<float>());
    }
  }

  void begin_step(Step step) override { step_ = step.index; }

  ring::Work start(Range units, Elements /*gradients*/, std::size_t micro) override {
    Bucket& bucket = find(units);
    bucket.values.clear();
    bucket.means.clear();
    for (UnitId unit = units.begin; unit < units.end; ++unit) {
      if (!plan_.layout.units[unit].trained) continue;
      const Elements gradient = world_.units[unit].gradients;
      const Elements values = world_.feedback == nullptr
                                  ? gradient
                                  : world_.feedback->add(unit, {0, gradient.size()}, step_, micro, gradient);
      bucket.values.push_back(values.as<float>());
      bucket.means.push_back(gradient.as<float>());
    }
    bucket.codec.encode_first(bucket.read_values(), bucket.start.as<float>(), bucket.first.as<float>());
    bucket.work = group_.all_reduce(bucket.first, ring::ReduceOp::Kind::mean);
    in_first_.push_back(&bucket);
    return ring::Work(std::make_shared<Exchange>(*this, bucket));  // shared, as all operations are
  }

  void predict(Range units, Prediction& sum) const override {
    const optim::PowerSgd& codec = find(units).codec;
    for (const std::size_t elements : {codec.first_elements(), codec.second_elements()})
      if (elements > 0) add_call(group_.predict(ring::Collective::all_reduce, elements, {DType::f32}), sum);
  }
  void predict_memory(Prediction& sum) const override {
    sum.worker_memory[Category::communication] += factors_.size_bytes();
    sum.worker_memory[Category::optimizer] += starts_.size_bytes();
  }
  bool sums_in_rank_order(bool /*accumulated*/) const override {
    return group_.sums_in_rank_order(ring::Collective::all_reduce, {DType::f32});
  }
  /// All workers have the same start: worker 0 saves it.
  std::vector<optim::StatePart> state() override {
    std::vector<optim::StatePart> parts;
    if (plan_.data_rank.value != 0) return parts;
    for (Bucket& bucket : buckets_)
      if (!bucket.start.empty())
        parts.push_back({&bucket.start_tensors, {0, bucket.start.size()}, optim::kValues, bucket.start});
    return parts;
  }

 private:
  /// Both all-reduces of a bucket, as one operation: it is complete only after `wait`.
  class Exchange final : public ring::Operation {
   public:
    Exchange(LowRankAllReduce& all, Bucket& bucket) : all_(all), bucket_(bucket) {}

    bool advance() override {
      if (!done_) bucket_.work.done();
      return done_;
    }
    void wait() override {
      if (std::exchange(done_, true)) return;
      all_.start_second();
      bucket_.work.wait();
      all_.decode(bucket_);
    }
    /// If its all-reduce is complete, the bucket waits for no other worker.
    std::vector<std::size_t> awaited() const override {
      return bucket_.work.done() ? std::vector{all_.group_.rank()} : bucket_.work.awaited();
    }

   private:
    LowRankAllReduce& all_;
    Bucket& bucket_;
    bool done_ = false;
  };

  const Bucket& find(Range units) const {
    return *std::ranges::find(buckets_, units.begin, [](const Bucket& bucket) { return bucket.units.begin; });
  }
  Bucket& find(Range units) { return const_cast<Bucket&>(std::as_const(*this).find(units)); }

  /// Starts the second all-reduce of every bucket whose first one was started, in the order of these.
  void start_second() {
    for (Bucket* bucket : std::exchange(in_first_, {})) {
      bucket->work.wait();
      const auto first = bucket->first.as<float>();
      const auto second = bucket->second.as<float>();
      bucket->codec.encode_second(bucket->read_values(), first, second);
      if (world_.feedback != nullptr) bucket->codec.subtract(first, second, bucket->values);
      const Events::Topic topic(world_.events, bucket->units);
      bucket->work = second.empty() ? ring::Work() : group_.all_reduce(bucket->second, ring::ReduceOp::Kind::mean);
    }
  }

  static void decode(Bucket& bucket) {
    bucket.codec.decode(bucket.first.as<float>(), bucket.second.as<float>(), bucket.means);
    bucket.codec.next_start(bucket.second.as<float>(), bucket.start.as<float>());
  }

  const Plan& plan_;
  const World& world_;
  ring::ProcessGroup& group_;
  std::vector<Bucket> buckets_;
  Buffer factors_;
  Buffer starts_;
  std::vector<Bucket*> in_first_;  ///< buckets in their first all-reduce, in the order in which they were started
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Averaging> make_low_rank_all_reduce(const Plan& plan, const World& world, Workers& workers,
                                                    std::span<const Range> buckets, std::size_t rank) {
  return std::make_unique<LowRankAllReduce>(plan, world, workers, buckets, rank);
}

}  // namespace psring::worker
