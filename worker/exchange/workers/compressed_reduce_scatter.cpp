#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/workers/coded_work.h>
#include <psring/worker/state/compressor.h>

namespace psring::worker {
namespace {

class CompressedReduceScatter final : public Averaging {
 public:
  CompressedReduceScatter(const Plan& plan, const World& world, Workers& workers)
      : layout_(plan.layout), groups_(workers.groups()), owners_(workers.owners()), compressor_(*world.compressor) {
    const auto& groups = plan.place.shard_groups;
    for (std::size_t rank = 0; rank < plan.workers; ++rank)
      if (owners_.size() == plan.workers || groups[rank] == groups[plan.data_rank.value]) workers_.push_back(rank);
    check(workers_.size() == owners_.size(), "{} owners of {} workers", owners_.size(), workers_.size());
    received_ =
        world.buffer((owners_.size() - 1) * bytes_of({0, layout_.units.size()}), Category::communication, nullptr);
  }

  void begin_step(Step step) override { step_ = step.index; }

  ring::Work start(Range units, Elements gradients, std::size_t micro) override {
    std::vector<ring::Work> works;
    for (std::size_t rank = 0; rank < owners_.size(); ++rank)
      if (rank != owners_.rank()) works.push_back(owners_.recv(received(rank, units), rank));
    ConstElements own;
    for (std::size_t owner = 0; owner < owners_.size(); ++owner) {
      const ConstElements codes = encode_for(owner, units, gradients, micro);
      if (owner == owners_.rank())
        own = codes;
      else
        works.push_back(owners_.send(codes, owner));
    }
    if (!works.empty()) works.back().done();        // all messages that leave together have been asked for: they leave
    return ring::Work(std::make_shared<CodedWork>(  // shared, as all operations are
        owners_.rank(), std::move(works),
        [this, units, gradients, own, micro, step = step_] { decode(units, gradients, own, step, micro); }));
  }

  void predict(Range units, Prediction& sum) const override {
    const std::uint64_t bytes = (owners_.size() - 1) * bytes_of(units);
    add_call({{.sent = bytes, .received = bytes}}, sum);
  }
  void predict_memory(Prediction& sum) const override {
    sum.worker_memory[Category::communication] += received_.size_bytes();
  }
  bool sums_in_rank_order(bool accumulated) const override { return groups_.sums_in_rank_order(accumulated); }

 private:
  /// Calls `body` with each trained unit and the position of its gradient in the vector of all.
  void for_each_trained(Range units, const auto& body) const {
    std::size_t begin = 0;
    for (UnitId unit = units.begin; unit < units.end; ++unit) {
      if (layout_.units[unit].trained) body(unit, begin);
      begin += layout_.trained_elements(unit);
    }
  }
  /// Bytes of the codes for one owner: all owners' ranges of a unit have the same size.
  std::size_t bytes_of(Range units) const {
    std::size_t bytes = 0;
    for_each_trained(
        units, [&](UnitId unit, std::size_t /*begin*/) { bytes += compressor_.codec().bytes(layout_.owned(unit, 0)); });
    return bytes;
  }
  /// Room for the codes that `rank` sends of these units.
  Elements received(std::size_t rank, Range units) {
    const std::size_t place = rank < owners_.rank() ? rank : rank - 1;
    const std::size_t each = received_.size_bytes() / (owners_.size() - 1);
    return received_.elements(DType::u8).subspan(place * each + bytes_of({0, units.begin}), bytes_of(units));
  }

  /// The codes of an owner's ranges, which the compressor keeps next to each other (see pushed_parts).
  ConstElements encode_for(std::size_t owner, Range units, Elements gradients, std::size_t micro) {
    ConstElements codes;
    for_each_trained(units, [&](UnitId unit, std::size_t begin) {
      const Range range = layout_.partition(unit).range(owner);
      const ConstElements values = gradients.part({begin + range.begin, begin + range.end});
      const ConstElements part = compressor_.encode(unit, range, step_, micro, values);
      codes = codes.empty() ? part : codes.subspan(0, codes.size() + part.size());
    });
    return codes;
  }

  void decode(Range units, Elements gradients, ConstElements own, std::uint64_t step, std::size_t micro) {
    std::vector<Compressor::Written> written(owners_.size());
    std::size_t at = 0;
    for_each_trained(units, [&](UnitId unit, std::size_t begin) {
      const Range range = layout_.partition(unit).range(owners_.rank());
      const std::size_t bytes = compressor_.codec().bytes(range.size());
      for (std::size_t rank = 0; rank < owners_.size(); ++rank) {
        const ConstElements all = rank == owners_.rank() ? own : received(rank, units);
        written[rank] = {workers_[rank], all.subspan(at, bytes)};
      }
      compressor_.mean(unit, range, step, micro, written, gradients.part({begin + range.begin, begin + range.end}));
      at += bytes;
    });
  }

  const Layout& layout_;
  const ShardGroups& groups_;
  ring::ProcessGroup& owners_;
  Compressor& compressor_;
  std::vector<std::size_t> workers_;  ///< data rank of each owner
  Buffer received_;                   ///< codes of all units from every other rank
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Averaging> make_compressed_reduce_scatter(const Plan& plan, const World& world, Workers& workers) {
  return std::make_unique<CompressedReduceScatter>(plan, world, workers);
}

}  // namespace psring::worker
