#pragma once

#include <cstddef>
#include <string>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>

// Small jobs of a model with tables, and what those at servers have to agree in with virtual workers.
namespace psring::test {

/// 6 samples a step, so that 1, 2 and 3 workers divide it; an epoch ends in the middle of a batch.
inline JobOptions table_job() {
  JobOptions job;
  job.model = "dlrm:dense=4,features=5,dim=4,bottom=8-4,top=8-1";
  job.data = "criteo-like:samples=40";
  job.workers = 1;
  job.servers = 1;
  job.global_batch = 6;
  job.steps = 9;
  job.seed = 5;
  job.lr = 0.05;
  job.table_optimizer = "sgd";
  job.table_lr = 0.5;
  return job;
}

inline JobRun virtual_workers(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.virtual_workers = workers;
  job.servers = 0;
  return run_job(job);
}

inline JobRun at_servers(JobOptions job, std::size_t workers, std::size_t servers, Links links = Links::in_process,
                         const std::string& strategy = "ps") {
  job.strategy = strategy;
  job.workers = workers;
  job.servers = servers;
  return run_job(job, links);
}

/// Checks bytes and memory of a run. Links within a process copy answers, which no process does: what servers keep for
/// them is not compared.
inline void check_predicted(const JobRun& run, Links links = Links::in_process) {
  CHECK(run.servers_received == *run.predicted.server_receives * run.steps + run.predicted.run_server_receives);
  CHECK(run.servers_sent == *run.predicted.server_sends * run.steps + run.predicted.run_server_sends);
  for (const WorkerRun& worker : run.workers) {
    CHECK(worker.sent == *worker.predicted.worker_sends * run.steps + worker.predicted.run_sends);
    CHECK(worker.received == *worker.predicted.worker_receives * run.steps + worker.predicted.run_receives);
    for (const auto& [category, peak] : worker.peaks) {
      CAPTURE(to_string(category));
      CHECK(peak == worker.predicted.worker_memory.at(category));
    }
  }
  for (std::size_t server = 0; server < run.server_peaks.size(); ++server)
    for (const auto& [category, predicted] : run.predicted.each_server_memory.at(server)) {
      if (links == Links::in_process && category == Category::communication) continue;
      CAPTURE(server, to_string(category));
      const auto peak = run.server_peaks[server].find(category);  // a server without rows books no index
      CHECK((peak == run.server_peaks[server].end() ? 0 : peak->second) == predicted);
    }
}

/// Checks the bits of the model and its rows, bytes and memory.
inline void check_run(const JobRun& run, const JobRun& reference, Links links = Links::in_process) {
  CHECK((run.workers[0].model == reference.workers[0].model));
  check_predicted(run, links);
}

}  // namespace psring::test
