#include <algorithm>
#include <vector>

#include <psring/cli/job_memory.h>
#include <psring/cli/set_up.h>
#include <psring/common/proc/job_plan.h>

namespace psring::cli {

JobMemory job_memory(const JobOptions& job, std::size_t hosts, const App& app) {
  using Samples = worker::TrainSetup::Samples;
  check_servers_part(job, app);
  const bool made_up = job.data.starts_with("synthetic");
  worker::TrainSetup setup(job, app.worker_registries(), app.optimizers(), made_up ? Samples::planned : Samples::real);
  return job_memory(setup, hosts, 1);
}

JobMemory job_memory(worker::TrainSetup& setup, std::size_t agents, std::size_t on_host) {
  const JobOptions& job = setup.job();
  std::vector<std::size_t> placed = worker::place_workers(job.workers, agents);
  for (std::size_t& host : placed) host /= on_host;
  // Workers differ where cuts leave a remainder, and where a server lives in the process: the first and the last show
  // it.
  const worker::Prediction first = worker::predict_worker(setup, placed, 0);
  JobMemory memory{.worker = first.worker_memory, .server = first.server_memory};
  const auto guest_of = [](const worker::Prediction& prediction) {
    return prediction.each_server_memory.empty() ? prediction.server_memory : prediction.each_server_memory.back();
  };
  auto guest = guest_of(first);
  // Every part of the model differs from the others.
  const std::size_t parts = job.mesh().model_workers();
  for (std::size_t rank = job.workers - std::min(job.workers - 1, parts); rank < job.workers; ++rank) {
    const worker::Prediction other = worker::predict_worker(setup, placed, rank);
    const auto keep_larger = [](const auto& one, auto& most) {
      if (worker::total_bytes(one) > worker::total_bytes(most)) most = one;
    };
    keep_larger(other.worker_memory, memory.worker);
    keep_larger(other.server_memory, memory.server);
    keep_larger(guest_of(other), guest);
  }
  if (setup.strategy().servers) memory.servers = job.servers * (1 + job.replicas);
  if (job.colocated_servers() > 0) memory.guest = guest;
  // The first host has the largest shares.
  const auto share = [&](std::size_t count) {
    return net::share_begin(static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(agents),
                            static_cast<std::uint32_t>(std::min(on_host, agents)));
  };
  memory.host_bytes = share(job.workers) * worker::total_bytes(memory.worker) +
                      share(job.colocated_servers()) * worker::total_bytes(memory.guest) +
                      share(job.server_processes()) * worker::total_bytes(memory.server);
  return memory;
}

}  // namespace psring::cli
