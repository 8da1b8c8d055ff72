// Compressed gradients of workers that compute on devices, as the host plays them: the same bytes as on the host, and
// the same bits on a rerun and after a resume.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "device_jobs.h"
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::test;

namespace {

/// With servers where the strategy has some.
JobOptions compressed_job(const char* strategy, const char* compress, std::size_t workers) {
  JobOptions job = device_job(kMlp, workers);
  job.strategy = strategy;
  job.compress = compress;
  job.optimizer = "momentum";
  job.lr = 0.05;
  job.device = "cuda";
  if (!job.strategy.starts_with("ps") && job.strategy != "dp") return job;
  job.servers = 2;
  if (job.strategy == "ps-colocated") job.placement = "colocated";
  return job;
}

constexpr const char* kCompressing[] = {"ps", "ps-colocated", "ps-zero2", "ps-zero3", "ddp", "zero1", "zero2", "zero3"};

}  // namespace

TEST_CASE("gradients compressed on devices teach what those on the host do, in the same bytes") {
  const auto* const compress = GENERATE("bf16", "int8", "sign", "top-k:ratio=0.05", "random-k:ratio=0.05");
  const bool feedback = GENERATE(true, false);
  for (const char* strategy : kCompressing) {
    CAPTURE(strategy, compress, feedback);
    JobOptions job = compressed_job(strategy, compress, 2);
    job.error_feedback = feedback;
    job.device = "cpu";
    const JobRun host = run_job(job, Links::shm);
    job.device = "cuda";
    const JobRun devices = run_job(job, Links::shm);
    check_like(host, devices, 1e-5);
    CHECK(devices.servers_received == host.servers_received);
    CHECK(devices.servers_sent == host.servers_sent);
    if (feedback) CHECK((run_job(job, Links::shm).workers[0].model == devices.workers[0].model));
  }
}

TEST_CASE("top-k of everything changes no bit on devices") {
  for (const char* strategy : kCompressing) {
    CAPTURE(strategy);
    const JobRun whole = run_job(compressed_job(strategy, "none", 2), Links::shm);
    const JobRun compressed = run_job(compressed_job(strategy, "top-k:ratio=1", 2), Links::shm);
    CHECK((compressed.workers[0].model == whole.workers[0].model));
  }
  for (const char* compress : {"none", "top-k:ratio=0.2", "top-k:ratio=1"}) {  // the last has no room in the arena
    JobOptions job = compressed_job("ps", compress, 2);
    job.optimizer_on = "worker";
    const JobRun devices = run_job(job, Links::shm);
    job.device = "cpu";
    check_like(run_job(job, Links::shm), devices, 1e-5);
  }
}

TEST_CASE("stages of devices read what they are sent alike, of every micro-batch, and whoever owns what again") {
  for (const char* compress : {"int8", "top-k:ratio=0.1"}) {
    std::vector<std::string> models;
    for (const char* strategy : {"zero1", "zero2", "zero3"}) {
      CAPTURE(strategy, compress);
      models.push_back(run_job(compressed_job(strategy, compress, 3), Links::shm).workers[0].model);
      JobOptions job = compressed_job(strategy, compress, 4);
      job.accumulate = 3;
      job.shard_group = std::string("2");  // GCC 12 warns of a literal of one character (its bug 105651)
      job.device = "cpu";
      const JobRun host = run_job(job, Links::shm);
      job.device = "cuda";
      check_like(host, run_job(job, Links::shm), 1e-5);
    }
    CHECK((models[1] == models[0]));
    CHECK((models[2] == models[0]));
  }
}

TEST_CASE("compressed on devices, of workers that wait for nobody, and for servers on devices") {
  JobOptions job = compressed_job("ps-async", "top-k:ratio=0.1", 2);
  job.consistency = "asp";
  check_ends_alike(run_job(job, Links::shm));
  job = compressed_job("ps", "sign", 2);
  const JobRun on_host = run_job(job, Links::shm);
  job.server_device = "cuda";
  CHECK((run_job(job, Links::shm).workers[0].model == on_host.workers[0].model));
}

TEST_CASE("compressed runs on devices go on from checkpoints with what their workers kept") {
  for (const char* strategy : {"ps", "ps-zero3", "ddp", "zero2"}) {
    CAPTURE(strategy);
    JobOptions job = compressed_job(strategy, "top-k:ratio=0.05", 2);
    const std::string undisturbed = run_job(job, Links::shm).workers[0].model;
    const test::TemporaryFolder folder;
    JobOptions saving = job;
    saving.checkpoint_every = 2;
    saving.checkpoint_dir = folder.path();
    const JobRun saved = run_job(saving, Links::shm);
    CHECK((saved.workers[0].model == undisturbed));
    job.resume = folder.file("step-00000002");
    const JobRun resumed = run_job(job, Links::shm);
    CHECK((resumed.workers[0].model == undisturbed));
    for (const test::WorkerRun& worker : resumed.workers) CHECK(worker.peaks == worker.predicted.worker_memory);
    job.device = "cpu";
    const JobRun on_host = run_job(job, Links::shm);
    for (std::size_t i = 0; i < on_host.workers[0].steps.size(); ++i)
      CHECK(on_host.workers[0].steps[i].loss == Approx(resumed.workers[0].steps[i].loss).epsilon(1e-5));
  }
}
