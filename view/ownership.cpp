#include <cstdint>
#include <string>

#include <psring/view/ownership.h>

namespace psring::view {
namespace {

Json states(const char* parameters, const char* gradients, const char* optimizer) {
  return {{"parameters", parameters}, {"gradients", gradients}, {"optimizer", optimizer}};
}

Json worker_of_ring(int stage) {
  return states(stage >= 3 ? "range+passing" : "whole", stage >= 2 ? "range+passing" : "whole",
                stage >= 1 ? "range" : "whole");
}

Json worker_of_servers(int stage, bool updates) {
  return states(stage >= 3 ? "passing" : "whole", stage >= 2 ? "passing" : "whole", updates ? "whole" : "none");
}

}  // namespace

Json ownership(const worker::StrategyKind& kind, const Json& job, const std::optional<Layout>& layout,
               const CutWeights& weights) {
  const auto workers = kind.one_worker ? std::uint64_t{1} : job.value("workers", std::uint64_t{1});
  const auto servers = kind.servers ? job.value("servers", std::uint64_t{0}) : 0;
  const std::string group = job.value("shard_group", "");
  if (group == "host") return {};
  const bool cuts = kind.ring && kind.stage > 0;
  const auto tensor = job.value("tensor", std::uint64_t{1});
  const auto pipeline = job.value("pipeline", std::uint64_t{1});
  const std::uint64_t copies = workers / (tensor * pipeline);
  Json json = {{"workers", workers},
               {"servers", servers},
               {"colocated", job.value("placement", "") == "colocated"},
               {"parts", !cuts           ? 1
                         : group.empty() ? copies
                                         : std::stoull(group)}};
  if (tensor * pipeline > 1) json["mesh"] = {{"data", copies}, {"tensor", tensor}, {"pipeline", pipeline}};
  if (!weights.even()) {
    constexpr std::size_t kMany = std::size_t{1} << 32;  // of these parts, a share is as precise as the weights
    for (std::size_t server = 0; server < weights.owners(); ++server)
      json["shares"].push_back(
          static_cast<double>(weights.part_before(kMany, server + 1) - weights.part_before(kMany, server)) / kMany);
  }
  if (layout)
    for (const UnitLayout& unit : layout->units)
      json["units"].push_back({{"name", unit.name}, {"elements", unit.elements}});
  if (!kind.servers) {
    json["worker"] = worker_of_ring(kind.ring ? kind.stage : 0);
    return json;
  }
  const bool on_worker = job.value("optimizer_on", "server") == "worker";
  json["worker"] = worker_of_servers(kind.stage, on_worker);
  json["server"] = states(on_worker ? "none" : "range", "range", on_worker ? "none" : "range");
  return json;
}

}  // namespace psring::view
