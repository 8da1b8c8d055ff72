#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>

// Jobs whose workers compute on devices, as the host plays them (support/cuda_on_host), and what they have to agree in
// with jobs on the host.
namespace psring::test {

inline constexpr const char* kMlp = "mlp:20-33-17-5";
inline constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";

inline JobOptions device_job(const char* model, std::size_t workers) {
  JobOptions job = small_job(model, 4);
  job.workers = workers;
  job.servers = 0;
  job.lr = 0.003;
  return job;
}

inline JobRun on_host(JobOptions job) {
  job.strategy = "single";
  job.virtual_workers = job.workers;
  job.workers = 1;
  return run_job(job);
}

inline JobRun on_devices(JobOptions job, const std::string& strategy) {
  job.strategy = strategy;
  job.device = "cuda";
  return run_job(job, Links::shm);
}

/// The mean over the workers.
inline std::vector<double> losses(const JobRun& run) {
  std::vector<double> sums(run.steps);
  std::vector<double> rows(run.steps);
  for (const WorkerRun& worker : run.workers)
    for (std::size_t i = 0; i < worker.steps.size(); ++i) {
      sums[i] += worker.steps[i].loss * static_cast<double>(worker.steps[i].samples);
      rows[i] += static_cast<double>(worker.steps[i].samples);
    }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= rows[i];
  return sums;
}

inline void check_like(const JobRun& host, const JobRun& devices, double tolerance) {
  const std::vector<double> expected = losses(host);
  const std::vector<double> got = losses(devices);
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(tolerance));
  for (const WorkerRun& worker : devices.workers) {
    CHECK(worker.model == devices.workers[0].model);  // all hold the same bits
    const worker::Prediction& predicted = worker.predicted;
    CHECK(worker.sent == devices.steps * predicted.worker_sends.value() + predicted.run_sends);
    CHECK(worker.received == devices.steps * predicted.worker_receives.value() + predicted.run_receives);
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

/// Checks a run whose bits do not repeat: all workers end with the servers' values, and all losses are finite.
inline void check_ends_alike(const JobRun& run) {
  for (const WorkerRun& worker : run.workers) {
    CHECK((worker.model == run.workers[0].model));
    for (const StepReport& step : worker.steps) CHECK(std::isfinite(step.loss));
  }
}

}  // namespace psring::test
