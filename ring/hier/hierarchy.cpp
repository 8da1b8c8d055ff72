#include <algorithm>
#include <map>

#include <psring/ring/hier/hierarchy.h>

namespace psring::ring {
Hierarchy::Hierarchy(const std::vector<std::size_t>& host_of, std::size_t rank) : rank_(rank) {
  std::map<std::size_t, std::size_t> numbers;
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const std::size_t host = numbers.try_emplace(host_of[r], numbers.size()).first->second;
    hosts_.resize(numbers.size());
    host_of_.push_back(host);
    places_.push_back(hosts_[host].size());
    hosts_[host].push_back(r);
  }
  if (hosts() < 2) return;
  for (const auto& ranks : hosts_) columns_ = std::max(columns_, ranks.size());
  for (std::size_t c = place_of(rank); c < columns_; c += on_host(host()).size()) own_columns_.push_back(c);
}

std::vector<std::size_t> Hierarchy::column(std::size_t column) const {
  std::vector<std::size_t> ranks;
  for (const auto& each : hosts_) ranks.push_back(each[column % each.size()]);
  return ranks;
}

std::vector<Range> Hierarchy::cuts(std::size_t count, std::size_t width) const {
  const std::size_t used = std::clamp<std::size_t>((count * width + kCutBytes - 1) / kCutBytes, 1, columns_);
  std::vector<Range> cuts(columns_);
  for (std::size_t c = 0; c < used; ++c) cuts[c] = {c * count / used, (c + 1) * count / used};
  return cuts;
}

/// The part that a column carries for a host: the part of the host's c-th rank, for column c.
std::vector<Range> Hierarchy::carried(std::size_t column, std::size_t host, const Parts& parts) const {
  const auto& ranks = on_host(host);
  return column < ranks.size() ? parts[ranks[column]] : std::vector<Range>();
}

/// Assigns each column's ranges to the rank of this host that is in the column.
Parts Hierarchy::by_place(const std::vector<std::vector<Range>>& by_column) const {
  const std::size_t places = on_host(host()).size();
  Parts parts(places);
  for (std::size_t c = 0; c < by_column.size(); ++c)
    parts[c % places].insert(parts[c % places].end(), by_column[c].begin(), by_column[c].end());
  return parts;
}

Hierarchy::Stages Hierarchy::stages(Collective collective, std::size_t count, std::size_t width, const Parts& parts,
                                    std::size_t root) const {
  const Range whole{0, count};
  if (columns_ == 0) return {{collective, whole, parts, root}, {}, std::nullopt};
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return of_parts(collective, count, parts);
    case Collective::barrier: {
      // A single column exchanges the vector; the other columns exchange nothing.
      Stages stages{{}, std::vector<Stage>(own_columns_.size(), {Collective::broadcast, {}, {}, 0}), Stage{}};
      if (own_columns_.front() == 0) stages.between.front() = {};
      return stages;
    }
    default:
      return of_cuts(collective, count, cuts(count, width), root);
  }
}

/// Each column reduces, or gathers, the parts of its ranks; on a small host a rank's part belongs to its first column.
Hierarchy::Stages Hierarchy::of_parts(Collective collective, std::size_t count, const Parts& parts) const {
  const Range whole{0, count};
  std::vector<std::vector<Range>> by_column(columns_);
  for (std::size_t c = 0; c < columns_; ++c)
    for (std::size_t h = 0; h < hosts(); ++h)
      for (const Range range : carried(c, h, parts)) by_column[c].push_back(range);
  Stages stages{{}, {}, Stage{}};
  if (on_host(host()).size() > 1)
    (collective == Collective::reduce_scatter ? stages.down : *stages.up) =
        Stage{collective, whole, by_place(by_column), 0};
  for (const std::size_t c : own_columns_) {
    Parts of_hosts;
    for (std::size_t h = 0; h < hosts(); ++h) of_hosts.push_back(carried(c, h, parts));
    stages.between.push_back({collective, whole, std::move(of_hosts), 0});
  }
  return stages;
}

/// The stages of an all_reduce or broadcast.
Hierarchy::Stages Hierarchy::of_cuts(Collective collective, std::size_t count, const std::vector<Range>& cuts,
                                     std::size_t root) const {
  const Range whole{0, count};
  const bool reduces = collective == Collective::all_reduce;
  const bool at_root = !reduces && host_of(root) == host();
  std::vector<std::vector<Range>> by_column;
  for (const Range cut : cuts) by_column.push_back({cut});
  Stages stages{{}, {}, Stage{}};
  if (on_host(host()).size() > 1) {
    if (reduces) stages.down = {Collective::reduce_scatter, whole, by_place(by_column), 0};
    if (at_root) stages.down = {Collective::broadcast, whole, {}, place_of(root)};
    if (!at_root) stages.up = Stage{Collective::all_gather, whole, by_place(by_column), 0};
  }
  for (const std::size_t c : own_columns_)
    stages.between.push_back({collective, cuts[c], {}, reduces ? 0 : host_of(root)});
  return stages;
}

Cost Hierarchy::predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
                        std::size_t root, const std::function<Cost(const Stage&)>& inside,
                        const std::function<Cost(std::size_t, const Stage&)>& between) const {
  if (collective == Collective::send) return {{count * type.bytes(), 0}};
  if (collective == Collective::recv) return {{0, count * type.bytes()}};
  const Stages all = stages(collective, count, type.bytes(), parts, root);
  Cost sum;
  const auto add = [&](const Cost& moved) {
    sum.sent += moved.sent;
    sum.received += moved.received;
    sum.latencies = std::max(sum.latencies, moved.latencies);  // columns work at the same time
  };
  add(inside(all.down));
  for (std::size_t i = 0; i < all.between.size(); ++i) add(between(i, all.between[i]));
  if (all.up) add(inside(*all.up));
  return sum;
}

}  // namespace psring::ring
