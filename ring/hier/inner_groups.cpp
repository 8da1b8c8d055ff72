#include <utility>

#include <psring/ring/hier/inner_groups.h>

namespace psring::ring {

InnerGroups make_inner_groups(const Hierarchy& hierarchy, std::uint32_t id, InnerGroup& host,
                              const std::vector<std::size_t>& places, std::unique_ptr<InnerGroup> links,
                              std::uint32_t links_id) {
  const std::vector<std::size_t>& names = hierarchy.on_host(hierarchy.host());
  InnerGroups inner{host.part(places, 2 * id + 1, names), host.part(places, 2 * id + 2, names), std::move(links), {}};
  for (const std::size_t c : hierarchy.own_columns()) {
    const std::vector<std::size_t> ranks = hierarchy.column(c);
    inner.columns.push_back(inner.links->part(ranks, links_id + 1 + static_cast<std::uint32_t>(c), ranks));
  }
  return inner;
}

}  // namespace psring::ring
