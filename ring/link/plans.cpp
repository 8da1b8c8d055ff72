#include <algorithm>

#include <psring/ring/link/plans.h>
#include <psring/ring/plan/collective_plans.h>

namespace psring::ring {

Tuning::Row LinkPlans::choice(std::size_t bytes) const {
  Tuning::Row row = options_.tuning.pick(ranks_, bytes);
  if (options_.algorithm) row.algorithm = *options_.algorithm;
  if (options_.segment_bytes > 0) row.segment_bytes = options_.segment_bytes;
  return row;
}

Plan LinkPlans::plan(const Request& request) const {
  const Call& call = request.call;
  const Tuning::Row row = choice(call.count * call.type.bytes());
  const Planner planner{rank_, ranks_, std::max<std::size_t>(1, row.segment_bytes / call.type.bytes())};
  const bool small = row.algorithm.for_small_vectors;
  switch (call.collective) {
    case Collective::all_reduce:
      return plan_all_reduce(row.algorithm, planner, call.count);
    case Collective::reduce_scatter:
      return plan_reduce_scatter(planner, *request.parts, small);
    case Collective::all_gather:
      return plan_all_gather(planner, *request.parts, small);
    case Collective::broadcast:
      return plan_broadcast(planner, call.count, call.root, small);
    case Collective::barrier:
      return plan_barrier(planner);
    case Collective::send:
      return plan_message(planner, call.count, Action::Kind::send, request.peer);
    case Collective::recv:
      return plan_message(planner, call.count, Action::Kind::receive, request.peer);
  }
  return {};
}

Cost LinkPlans::predict(const Request& request) const {
  const Call& call = request.call;
  const Plan made = plan(request);
  const bool reduces = call.collective == Collective::all_reduce;
  return {{made.sent() * call.type.bytes(), made.received() * call.type.bytes()},
          reduces ? latencies(choice(call.count * call.type.bytes()).algorithm, ranks_) : 0};
}

std::string_view LinkPlans::name(Collective collective, std::size_t bytes) const {
  const Algorithm algorithm = choice(bytes).algorithm;
  const bool small = algorithm.for_small_vectors;
  return collective == Collective::all_reduce  ? algorithm.name
         : collective == Collective::barrier   ? "dissemination"
         : collective == Collective::broadcast ? (small ? "tree" : "chain")
         : small                               ? "exchange"
                                               : "ring";
}

/// A star's root adds one vector after another, and rounds a 16-bit type after each.
bool LinkPlans::sums_in_rank_order(Collective reduction, ElementType type) const {
  const bool star = options_.algorithm == Algorithm::star && reduction == Collective::all_reduce && type.bytes() >= 4;
  return ranks_ <= 2 || options_.algorithm == Algorithm::exchange || star;
}

}  // namespace psring::ring
