#include <psring/common/proc/job.h>
#include <psring/worker/compressor.h>
#include <psring/worker/exchange/servers.h>

namespace psring::worker {

bool Servers::has_own_server() const {
  return plan_.job.placement == "colocated" && plan_.data_rank.value < plan_.layout.owners;
}

std::uint64_t Servers::over_the_wire(std::uint64_t bytes, std::size_t worker) const {
  const std::uint64_t servers = plan_.layout.owners;
  const bool one_here = plan_.job.placement == "colocated" && worker < servers;
  return one_here ? bytes / servers * (servers - 1) : bytes;
}

void Servers::predict_pushes(Prediction& sum) const {
  const std::uint64_t gradient =
      world_.compressor != nullptr ? world_.compressor->encoded_bytes() : plan_.layout.gradient_bytes();
  const std::uint64_t pushed = plan_.layout.pushes * gradient;
  sum.worker_sends = sum.server_receives = 0;
  const auto push = [&](std::size_t worker) {
    if (worker == plan_.data_rank.value) *sum.worker_sends += over_the_wire(pushed, worker);
    *sum.server_receives += over_the_wire(pushed, worker);
  };
  if (plan_.place.pushers.empty())
    for (std::size_t worker = 0; worker < plan_.workers; ++worker) push(worker);
  for (const std::size_t worker : plan_.place.pushers) push(worker);
  const std::size_t all_push = plan_.place.pushers.empty() ? plan_.workers : plan_.place.pushers.size();
  if (plan_.place.replicas > 0) sum.server_replicates = plan_.place.replicas * all_push * pushed;
  if (has_own_server())
    sum.own_server_receives = (all_push - (host_sum_.this_worker_pushes() ? 1 : 0)) * (pushed / plan_.layout.owners);
}

void Servers::predict_pulls(std::uint64_t pulled, Prediction& sum) const {
  sum.worker_receives = over_the_wire(pulled, plan_.data_rank.value);
  sum.server_sends = 0;
  for (std::size_t worker = 0; worker < plan_.workers; ++worker) *sum.server_sends += over_the_wire(pulled, worker);
  if (has_own_server()) sum.own_server_sends = (plan_.workers - 1) * (pulled / plan_.layout.owners);
  host_sum_.predict(sum);
}

}  // namespace psring::worker
