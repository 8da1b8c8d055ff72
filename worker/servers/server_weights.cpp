#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <psring/common/base/dtype.h>
#include <psring/common/proc/mesh_servers.h>
#include <psring/worker/servers/server_weights.h>

namespace psring::worker {

CutWeights server_weights(const JobOptions& job, std::uint64_t pushed, std::uint64_t pulled) {
  if (job.placement != "mixed") return {};
  constexpr std::uint64_t kMore = 64;
  const std::uint64_t most = std::max(pushed, pulled);
  const std::uint64_t less = std::max<std::uint64_t>(1, (std::min(pushed, pulled) * kMore + most / 2) / most);
  const std::uint64_t workers = job.data_workers();
  const std::uint64_t extra = servers_of_part(job) - workers;
  std::uint64_t colocated = (workers - extra) * kMore;
  std::uint64_t standalone = (workers - 1) * (kMore + less);
  const std::uint64_t common = std::gcd(colocated, standalone);
  colocated /= common;
  standalone /= common;
  while (workers * colocated + extra * standalone > std::numeric_limits<std::uint32_t>::max()) {
    colocated = std::max<std::uint64_t>(1, colocated / 2);
    standalone /= 2;
  }
  std::vector<std::uint32_t> weights(extra, static_cast<std::uint32_t>(standalone));
  weights.resize(servers_of_part(job), static_cast<std::uint32_t>(colocated));
  return CutWeights(weights);
}

CutWeights server_weights(const JobOptions& job, const StrategyKind& kind, const Layout& layout) {
  const std::size_t gradient = size_bytes(layout.gradient_type);
  const std::size_t parameter = size_bytes(layout.parameter_type);
  const std::size_t answer = job.optimizer_on == "worker" ? gradient : parameter;
  const std::size_t gathers = job.reshard_after_forward ? 2 : 1;
  return server_weights(job, (kind.at_owner ? job.accumulate : 1) * gradient,
                        kind.gathers ? job.accumulate * gathers * parameter : answer);
}

std::string describe_shares(const JobOptions& job, const Layout& layout) {
  if (layout.weights.even())
    return fmt::format("each of {} servers holds {}", servers_of_part(job), layout.owned_elements(0));
  const std::size_t parts = job.mesh().model_workers();
  return fmt::format("each of {} colocated servers holds about {}, each of {} standalone servers about {}",
                     job.colocated_servers() / parts, layout.owned_elements(servers_of_part(job) - 1),
                     job.standalone_servers() / parts, layout.owned_elements(0));
}

}  // namespace psring::worker
