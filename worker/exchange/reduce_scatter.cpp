#include <psring/worker/exchange/averaging.h>

namespace psring::worker {

ring::Parts owners_of(const Layout& layout, Range units) {
  ring::Parts parts(layout.owners);
  std::size_t begin = 0;
  for (UnitId unit = units.begin; unit < units.end; ++unit) {
    if (!layout.units[unit].trained) continue;
    for (std::size_t owner = 0; owner < layout.owners; ++owner) {
      const Range range = layout.partition(unit).range(owner);
      parts[owner].push_back({begin + range.begin, begin + range.end});
    }
    begin += layout.units[unit].elements;
  }
  return parts;
}

namespace {

class ReduceScatter final : public Averaging {
 public:
  ReduceScatter(const Plan& plan, Workers& workers)
      : layout_(plan.layout), groups_(workers.groups()), owners_(workers.owners()) {}

  ring::Work start(Range units, Elements gradients, std::size_t /*micro*/) override {
    return owners_.reduce_scatter(gradients, owners_of(layout_, units), ring::ReduceOp::Kind::mean);
  }
  void predict(Range units, Prediction& sum) const override {
    std::size_t elements = 0;
    for (UnitId unit = units.begin; unit < units.end; ++unit) elements += layout_.trained_elements(unit);
    add_call(
        owners_.predict(ring::Collective::reduce_scatter, elements, {layout_.gradient_type}, owners_of(layout_, units)),
        sum);
  }
  bool sums_in_rank_order(bool accumulated) const override { return groups_.sums_in_rank_order(accumulated); }

 private:
  const Layout& layout_;
  const ShardGroups& groups_;
  ring::ProcessGroup& owners_;
};

}  // namespace

std::unique_ptr<Averaging> make_reduce_scatter(const Plan& plan, Workers& workers) {
  return std::make_unique<ReduceScatter>(plan, workers);
}

}  // namespace psring::worker
