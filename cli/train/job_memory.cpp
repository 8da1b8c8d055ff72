#include <algorithm>
#include <set>
#include <vector>

#include <psring/cli/train/job_memory.h>
#include <psring/cli/train/set_up.h>
#include <psring/common/proc/job_plan.h>

namespace psring::cli {

JobMemory job_memory(const JobOptions& job, std::size_t hosts, const App& app) {
  using Samples = worker::TrainSetup::Samples;
  check_servers_part(job, app);
  const bool made_up = job.data.starts_with("synthetic");
  worker::TrainSetup setup(job, app.worker_registries(), app.optimizers(), made_up ? Samples::planned : Samples::real);
  return job_memory(setup, hosts, 1);
}

namespace {

/// Workers differ where cuts leave a remainder, and where a server lives in the process: the first and the last show
/// it. In a mesh every stage of the pipeline differs; of the tensor ranks that divide its layers, the last has the
/// largest parts.
std::vector<std::size_t> different_workers(const JobOptions& job) {
  const Mesh mesh = job.mesh();
  std::set<std::size_t> ranks{0};
  const std::size_t last_copy = job.workers - std::min(job.workers, mesh.model_workers());
  for (std::size_t stage = 0; stage < mesh.pipeline; ++stage)
    ranks.insert(std::min(job.workers - 1, last_copy + stage * mesh.tensor + mesh.tensor - 1));
  return {ranks.begin(), ranks.end()};
}

}  // namespace

JobMemory job_memory(worker::TrainSetup& setup, std::size_t agents, std::size_t on_host) {
  const JobOptions& job = setup.job();
  std::vector<std::size_t> placed = worker::place_workers(job.workers, agents);
  for (std::size_t& host : placed) host /= on_host;
  const std::vector<worker::Prediction> predictions = worker::predict_workers(setup, placed, different_workers(job));
  JobMemory memory{.worker = predictions.front().worker_memory, .server = predictions.front().server_memory};
  const auto guest_of = [](const worker::Prediction& prediction) {
    return prediction.each_server_memory.empty() ? prediction.server_memory : prediction.each_server_memory.back();
  };
  auto guest = guest_of(predictions.front());
  for (const worker::Prediction& other : predictions) {
    const auto keep_larger = [](const auto& one, auto& most) {
      if (worker::total_bytes(one) > worker::total_bytes(most)) most = one;
    };
    keep_larger(other.worker_memory, memory.worker);
    keep_larger(other.server_memory, memory.server);
    keep_larger(guest_of(other), guest);
  }
  memory.rows = predictions.front().rows;
  if (setup.strategy().has_servers()) memory.servers = job.servers * (1 + job.replicas);
  if (job.colocated_servers() > 0) memory.guest = job.standalone_servers() > 0 ? guest : memory.server;
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
