#include <psring/worker/exchange/averaging.h>
#include <psring/worker/exchange/ownership.h>

namespace psring::worker {
namespace {

class AllReduce final : public Averaging {
 public:
  AllReduce(const Plan& plan, Workers& workers) : layout_(plan.layout), group_(workers.group()) {}

  ring::Work start(Range /*units*/, Elements gradients, std::size_t /*micro*/) override {
    return group_.all_reduce(gradients, ring::ReduceOp::Kind::mean);
  }
  void predict(Range units, Prediction& sum) const override { add_call(*cost(units), sum); }
  std::optional<ring::Cost> cost(Range units) const override {
    return group_.predict(ring::Collective::all_reduce, trained_elements(layout_, units), {layout_.gradient_type});
  }
  bool sums_in_rank_order(bool /*accumulated*/) const override {
    return group_.sums_in_rank_order(ring::Collective::all_reduce, {layout_.gradient_type});
  }

 private:
  const Layout& layout_;
  ring::ProcessGroup& group_;
};

}  // namespace

std::unique_ptr<Averaging> make_all_reduce(const Plan& plan, Workers& workers) {
  return std::make_unique<AllReduce>(plan, workers);
}

}  // namespace psring::worker
