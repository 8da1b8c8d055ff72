#include <psring/common/proc/mesh_servers.h>
#include <psring/worker/compressor.h>
#include <psring/worker/exchange/servers.h>
#include <psring/worker/server_bytes.h>

namespace psring::worker {

Servers::Way Servers::pushed_way() const {
  const Layout& layout = plan_.layout;
  Way way{.by_server = std::vector<std::uint64_t>(layout.owners, 0)};
  const optim::Codec* const codec = world_.compressor == nullptr ? nullptr : &world_.compressor->codec();
  for (std::size_t server = 0; server < layout.owners; ++server)
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit)
      way.by_server[server] += pushed_bytes(layout, unit, server, codec);
  for (std::uint64_t& bytes : way.by_server) {
    bytes *= layout.pushes;
    way.all += bytes;
  }
  return way;
}

Servers::Way Servers::pulled_way(std::span<const UnitId> units, DType type) const {
  Way way{.by_server = std::vector<std::uint64_t>(plan_.layout.owners, 0)};
  for (std::size_t server = 0; server < plan_.layout.owners; ++server) {
    for (const UnitId unit : units) way.by_server[server] += pulled_bytes(plan_.layout, unit, server, type);
    way.all += way.by_server[server];
  }
  return way;
}

std::uint64_t Servers::over_the_wire(const Way& way, std::size_t worker) const {
  const std::optional<std::size_t> own = server_beside(plan_.job, DataRank{worker});
  return own ? way.all - way.by_server[*own] : way.all;
}

void Servers::predict_pushes(Prediction& sum) const {
  const Way pushed = pushed_way();
  sum.worker_sends = sum.server_receives = 0;
  const auto push = [&](std::size_t worker) {
    if (worker == plan_.data_rank.value) *sum.worker_sends += over_the_wire(pushed, worker);
    *sum.server_receives += over_the_wire(pushed, worker);
  };
  if (plan_.place.pushers.empty())
    for (std::size_t worker = 0; worker < plan_.workers; ++worker) push(worker);
  for (const std::size_t worker : plan_.place.pushers) push(worker);
  const std::size_t all_push = plan_.place.pushers.empty() ? plan_.workers : plan_.place.pushers.size();
  if (plan_.place.replicas > 0) sum.server_replicates = plan_.place.replicas * all_push * pushed.all;
  if (const auto own = server_beside(plan_.job, plan_.data_rank))
    sum.own_server_receives = (all_push - (host_sum_.this_worker_pushes() ? 1 : 0)) * pushed.by_server[*own];
}

void Servers::predict_pulls(std::span<const UnitId> units, DType type, Prediction& sum) const {
  const Way pulled = pulled_way(units, type);
  sum.worker_receives = over_the_wire(pulled, plan_.data_rank.value);
  sum.server_sends = 0;
  for (std::size_t worker = 0; worker < plan_.workers; ++worker) *sum.server_sends += over_the_wire(pulled, worker);
  if (const auto own = server_beside(plan_.job, plan_.data_rank))
    sum.own_server_sends = (plan_.workers - 1) * pulled.by_server[*own];
  host_sum_.predict(sum);
}

}  // namespace psring::worker
