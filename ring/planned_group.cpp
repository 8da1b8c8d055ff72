#include <array>
#include <optional>
#include <set>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/link/plans.h>
#include <psring/ring/planned_group.h>
#include <psring/ring/shm/predict.h>
#include <psring/ring/split.h>

namespace psring::ring {
namespace {

enum class Way : std::uint8_t { shared_memory, messages, both };

/// The choice of RingLinks::connect.
Way way_of(const PlannedRanks& ranks) {
  const std::set<std::size_t> hosts(ranks.host_of.begin(), ranks.host_of.end());
  if (ranks.messages) return Way::messages;
  if (hosts.size() == 1) return Way::shared_memory;
  return hosts.size() < ranks.host_of.size() ? Way::both : Way::messages;
}

LinkOptions link_options(const PlannedRanks& ranks) {
  LinkOptions options;
  options.tuning = ranks.tuning;
  options.algorithm = ranks.algorithm;
  return options;
}

class PlannedGroup final : public ProcessGroup {
 public:
  PlannedGroup(PlannedRanks ranks, std::size_t rank, Way way)
      : ProcessGroup(rank, ranks.host_of.size()),
        ranks_(std::move(ranks)),
        way_(way),
        hierarchy_(ranks_.host_of, rank),
        links_(link_options(ranks_)) {}

  Work start(const Request& /*request*/) override { refuse(); }
  std::unique_ptr<ProcessGroup> subgroup(const Split& split) override {
    PlannedRanks part = ranks_;
    part.host_of.clear();
    for (const std::size_t rank : split.ranks) part.host_of.push_back(ranks_.host_of[rank]);
    return std::make_unique<PlannedGroup>(std::move(part), split.rank, way_);
  }
  std::string describe(Collective collective, std::size_t /*count*/, ElementType /*type*/) const override {
    return fmt::format("{}: planned", to_string(collective));
  }
  /// A model has many units of one size, and a prediction asks for each of them.
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    const auto asks_this = [&](const Asked& asked) {
      return asked.collective == collective && asked.count == count && asked.type == type && asked.root == root &&
             asked.parts == parts;
    };
    for (const std::optional<Asked>& asked : asked_)
      if (asked && asks_this(*asked)) return asked->cost;
    const Cost cost = predict_new(collective, count, type, parts, root);
    asked_[next_] = Asked{collective, count, type, parts, root, cost};
    next_ = (next_ + 1) % asked_.size();
    return cost;
  }
  bool sums_in_rank_order(Collective reduction, ElementType type) const override {
    if (way_ == Way::messages) return LinkPlans(links_, rank(), size()).sums_in_rank_order(reduction, type);
    return way_ == Way::shared_memory || hierarchy_.hosts() == 1;
  }
  Moved moved() const override { return {}; }

 private:
  /// A question, and its answer.
  struct Asked {
    Collective collective = Collective::barrier;
    std::size_t count = 0;
    ElementType type;
    Parts parts;
    std::size_t root = 0;
    Cost cost;
  };

  Cost predict_new(Collective collective, std::size_t count, ElementType type, const Parts& parts,
                   std::size_t root) const {
    switch (way_) {
      case Way::shared_memory:
        return predict_shm(rank(), size(), collective, count, type, parts, root);
      case Way::messages:
        return by_messages(rank(), size(), {collective, {0, count}, parts, root}, type);
      case Way::both:
        break;
    }
    const std::size_t host = hierarchy_.host();
    const std::size_t near = hierarchy_.on_host(host).size();
    return hierarchy_.predict(
        collective, count, type, parts, root,
        [&](const Hierarchy::Stage& stage) {
          return predict_shm(hierarchy_.place_of(rank()), near, stage.collective, stage.range.size(), type, stage.parts,
                             stage.root);
        },
        [&](std::size_t, const Hierarchy::Stage& stage) { return by_messages(host, hierarchy_.hosts(), stage, type); });
  }
  Cost by_messages(std::size_t rank, std::size_t ranks, const Hierarchy::Stage& stage, ElementType type) const {
    Request request{.call = {.collective = stage.collective, .type = type, .count = stage.range.size()},
                    .parts = &stage.parts};
    request.call.root = static_cast<std::uint32_t>(stage.root);
    return LinkPlans(links_, rank, ranks).predict(request);
  }
  [[noreturn]] static void refuse() { fail(ErrorKind::bug, "a planned group runs no operation"); }

  const PlannedRanks ranks_;
  const Way way_;  ///< subgroups keep it
  const Hierarchy hierarchy_;
  const LinkOptions links_;
  mutable std::array<std::optional<Asked>, 4> asked_;  ///< the last ones
  mutable std::size_t next_ = 0;                       ///< to be replaced
};

}  // namespace

std::unique_ptr<ProcessGroup> make_planned_group(PlannedRanks ranks, std::size_t rank) {
  const Way way = way_of(ranks);
  return std::make_unique<PlannedGroup>(std::move(ranks), rank, way);
}

}  // namespace psring::ring
