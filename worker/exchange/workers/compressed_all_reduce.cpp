#include <map>

#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/workers/coded_work.h>
#include <psring/worker/state/compressor.h>

namespace psring::worker {
namespace {

class CompressedAllReduce final : public Averaging {
 public:
  CompressedAllReduce(const Plan& plan, const World& world, Workers& workers, std::span<const Range> buckets)
      : plan_(plan),
        units_(world.units),
        group_(workers.group()),
        compressor_(*world.compressor),
        codes_(world.buffer(plan.workers * compressor_.encoded_bytes(), Category::communication,
                            arena_for_codes(plan, world, plan.workers * compressor_.encoded_bytes()))) {
    std::size_t begin = 0;
    for (const Range bucket : buckets) {
      places_[bucket.begin] = {begin, begin + plan.workers * bytes_of(bucket)};
      begin = places_[bucket.begin].end;
    }
  }

  void begin_step(Step step) override { step_ = step.index; }

  ring::Work start(Range units, Elements /*gradients*/, std::size_t micro) override {
    const Elements all = codes(units);
    std::size_t at = plan_.data_rank.value * (all.size() / plan_.workers);
    for_each_trained(units, [&](UnitId unit, Elements gradient) {
      const ConstElements own = compressor_.encode(unit, step_, micro, gradient);
      copy(own, all.subspan(at, own.size()));
      at += own.size();
    });
    return ring::Work(std::make_shared<CodedWork>(  // shared, as all operations are
        group_.rank(), std::vector{group_.all_gather(all, parts_of(units))},
        [this, units, micro, step = step_] { decode(units, step, micro); }));
  }

  void predict(Range units, Prediction& sum) const override {
    add_call(group_.predict(ring::Collective::all_gather, places_.at(units.begin).size(), {DType::u8}, parts_of(units)),
             sum);
  }
  void predict_memory(Prediction& sum) const override {
    sum.worker_memory[Category::communication] += codes_.size_bytes();
  }
  bool sums_in_rank_order(bool /*accumulated*/) const override {
    return group_.sums_in_rank_order(ring::Collective::all_reduce, {plan_.layout.gradient_type});
  }

 private:
  void for_each_trained(Range units, const auto& body) const {
    for (UnitId unit = units.begin; unit < units.end; ++unit)
      if (plan_.layout.units[unit].trained) body(unit, units_[unit].gradients);
  }
  /// Bytes of one worker's codes.
  std::size_t bytes_of(Range units) const {
    std::size_t bytes = 0;
    for_each_trained(units, [&](UnitId unit, Elements /*gradient*/) {
      bytes += compressor_.codec().bytes(plan_.layout.units[unit].elements);
    });
    return bytes;
  }
  ring::Parts parts_of(Range units) const {
    const std::size_t bytes = places_.at(units.begin).size() / plan_.workers;
    ring::Parts parts(plan_.workers);
    for (std::size_t rank = 0; rank < plan_.workers; ++rank) parts[rank] = {{rank * bytes, (rank + 1) * bytes}};
    return parts;
  }
  /// The codes of all workers for a bucket.
  Elements codes(Range units) { return codes_.elements(DType::u8).part(places_.at(units.begin)); }

  void decode(Range units, std::uint64_t step, std::size_t micro) {
    const Elements all = codes(units);
    const std::size_t each = all.size() / plan_.workers;
    std::vector<Compressor::Written> written(plan_.workers);
    std::size_t at = 0;
    for_each_trained(units, [&](UnitId unit, Elements gradient) {
      const std::size_t bytes = compressor_.codec().bytes(gradient.size());
      for (std::size_t rank = 0; rank < plan_.workers; ++rank)
        written[rank] = {rank, all.subspan(rank * each + at, bytes)};
      compressor_.mean(unit, {0, gradient.size()}, step, micro, written, gradient);
      at += bytes;
    });
  }

  const Plan& plan_;
  const std::span<UnitBuffers> units_;
  ring::ProcessGroup& group_;
  Compressor& compressor_;
  Buffer codes_;
  std::map<UnitId, Range> places_;  ///< by a bucket's first unit: its bytes of all workers in codes_
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Averaging> make_compressed_all_reduce(const Plan& plan, const World& world, Workers& workers,
                                                      std::span<const Range> buckets) {
  return std::make_unique<CompressedAllReduce>(plan, world, workers, buckets);
}

}  // namespace psring::worker
