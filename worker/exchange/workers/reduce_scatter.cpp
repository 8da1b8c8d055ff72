#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/ownership.h>

namespace psring::worker {
namespace {

class ReduceScatter final : public Averaging {
 public:
  ReduceScatter(const Plan& plan, Workers& workers)
      : layout_(plan.layout), groups_(workers.groups()), owners_(workers.owners()) {}

  ring::Work start(Range units, Elements gradients, std::size_t /*micro*/) override {
    return owners_.reduce_scatter(gradients, owners_of(layout_, units), ring::ReduceOp::Kind::mean);
  }
  void predict(Range units, Prediction& sum) const override {
    add_call(owners_.predict(ring::Collective::reduce_scatter, trained_elements(layout_, units),
                             {layout_.gradient_type}, owners_of(layout_, units)),
             sum);
  }
  bool sums_in_rank_order(bool accumulated) const override { return groups_.sums_in_rank_order(accumulated); }

 private:
  const Layout& layout_;
  const ShardGroups& groups_;
  ring::ProcessGroup& owners_;
};

}  // namespace

std::unique_ptr<Averaging> make_reduce_scatter(const Plan& plan, const World& world, Workers& workers) {
  if (world.compressor != nullptr) return make_compressed_reduce_scatter(plan, world, workers);
  return std::make_unique<ReduceScatter>(plan, workers);
}

}  // namespace psring::worker
