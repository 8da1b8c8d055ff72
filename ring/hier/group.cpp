#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <psring/ring/hier/group.h>
#include <psring/ring/hier/progress.h>
#include <psring/ring/shm/control.h>
#include <psring/ring/split.h>

namespace psring::ring {
namespace {

class HierarchicalGroup final : public ProcessGroup {
 public:
  /// `stride`: each hierarchical group may use this many numbers of groups of messages.
  HierarchicalGroup(Hierarchy hierarchy, InnerGroups inner, const GroupOptions& options, std::uint32_t stride,
                    const Clock* clock)
      : ProcessGroup(hierarchy.rank(), hierarchy.size()),
        hierarchy_(std::move(hierarchy)),
        inner_(std::move(inner)),
        options_(options),
        stride_(stride),
        clock_(clock),
        progress_(hierarchy_, inner_, options, clock) {}

  Arena* arena() override { return inner_.down->arena(); }
  std::byte* reach(std::size_t rank, std::uint64_t mark) override {
    if (rank >= size()) fail(ErrorKind::usage, "rank {} of a group of {}", rank, size());
    if (hierarchy_.host_of(rank) != hierarchy_.host()) return nullptr;
    return inner_.down->reach(hierarchy_.place_of(rank), mark);
  }

  Work start(const Request& request) override {
    const bool message = request.call.collective >= Collective::send;
    return message ? progress_.start_message(request) : progress_.start_collective(request);
  }
  std::unique_ptr<ProcessGroup> subgroup(const Split& split) override {
    std::vector<std::size_t> host_of;
    std::vector<std::size_t> places;
    for (const std::size_t r : split.ranks) {
      host_of.push_back(hierarchy_.host_of(r));
      if (host_of.back() == hierarchy_.host()) places.push_back(hierarchy_.place_of(r));
    }
    Hierarchy hierarchy(host_of, split.rank);
    const std::uint32_t links_id = split.id * stride_;
    InnerGroups inner = make_inner_groups(hierarchy, split.id, *inner_.down, places,
                                          inner_.links->part(split.ranks, links_id, {}), links_id);
    return std::make_unique<HierarchicalGroup>(std::move(hierarchy), std::move(inner), options_, stride_, clock_);
  }

  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    if (hierarchy_.hosts() == 1) return inner_.down->describe(collective, count, type);
    const bool cut = collective == Collective::all_reduce || collective == Collective::broadcast;
    const std::size_t between =
        cut ? hierarchy_.stages(collective, count, type.bytes(), {}, 0).between.front().range.size() : count;
    return fmt::format("{}: hierarchical, {} hosts; {} inside, {} between", to_string(collective), hierarchy_.hosts(),
                       inner_.down->way(collective, count, type),
                       inner_.columns.front()->way(collective, between, type));
  }

  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    const auto cost = [&](const InnerGroup& group, const Hierarchy::Stage& stage) {
      return group.predict(stage.collective, stage.range.size(), type, stage.parts, stage.root);
    };
    return hierarchy_.predict(
        collective, count, type, parts, root, [&](const Hierarchy::Stage& stage) { return cost(*inner_.down, stage); },
        [&](std::size_t i, const Hierarchy::Stage& stage) { return cost(*inner_.columns[i], stage); });
  }

  bool sums_in_rank_order(Collective /*reduction*/, ElementType /*type*/) const override {
    return hierarchy_.hosts() == 1;
  }
  Moved moved() const override { return progress_.moved(); }
  void account() override {
    inner_.down->account();
    inner_.up->account();
  }

 private:
  const Hierarchy hierarchy_;
  const InnerGroups inner_;
  const GroupOptions options_;
  const std::uint32_t stride_;
  const Clock* const clock_;
  HierProgress progress_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_hierarchical_group(std::unique_ptr<InnerGroup> host,
                                                      std::unique_ptr<InnerGroup> links, std::size_t rank,
                                                      const std::vector<std::size_t>& host_of, GroupOptions options,
                                                      const Clock* clock) {
  Hierarchy hierarchy(host_of, rank);
  std::vector<std::size_t> places(host->size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  InnerGroups inner = make_inner_groups(hierarchy, 0, *host, places, std::move(links), 0);
  const auto stride = static_cast<std::uint32_t>(hierarchy.size() + 1);
  return std::make_unique<HierarchicalGroup>(std::move(hierarchy), std::move(inner), options, stride, clock);
}

}  // namespace psring::ring
