#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <psring/cli/app.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/proc/job.h>
#include <psring/worker/predict_job.h>

namespace psring::cli {

/// The memory that the processes of a job book, and the rows that they exchange, as the job's strategy predicts.
struct JobMemory {
  std::map<Category, std::uint64_t> worker;  ///< of the worker that needs the most
  std::map<Category, std::uint64_t> server;  ///< of each server, or of the largest; see `guest`
  std::size_t servers = 0;                   ///< with replicas
  std::map<Category, std::uint64_t> guest;   ///< of a colocated server, which is part of a worker's process
  std::uint64_t host_bytes = 0;              ///< of all processes on the host that needs the most
  std::vector<RowTraffic> rows;              ///< that the job exchanges, by table

  /// Bytes of the process that needs the most.
  std::uint64_t process_bytes() const {
    return std::max(worker::total_bytes(worker) + worker::total_bytes(guest), worker::total_bytes(server));
  }
};

/// Predicts for a job whose workers and servers are shared by `hosts` hosts as agents share them. Throws usage or data
/// as the job's launch does. Starts nothing, and takes no memory for the model.
JobMemory job_memory(const JobOptions& job, std::size_t hosts, const App& app);
/// The same for `agents` agents, of which each host has `on_host`.
JobMemory job_memory(worker::TrainSetup& setup, std::size_t agents, std::size_t on_host);

}  // namespace psring::cli
