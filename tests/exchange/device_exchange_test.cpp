// Ways of training whose workers compute on devices, as the host plays them (support/cuda_on_host): what they learn is
// what `single` learns on the host, and they move and hold what is predicted.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "device_jobs.h"
#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::test;

TEST_CASE("workers on devices learn what one worker on the host does") {
  struct Case {
    const char* model;
    std::size_t workers;
    double clip;
  };
  const auto [model, workers, clip] = GENERATE(values<Case>({{kMlp, 3, 0}, {kMlp, 1, 0.05}, {kGpt, 2, 0.05}}));
  JobOptions job = device_job(model, workers);
  job.clip_norm = clip;
  const JobRun host = on_host(job);
  for (const char* strategy : {"ddp-naive", "ddp", "zero1", "zero2", "zero3"}) {
    CAPTURE(model, workers, clip, strategy);
    check_like(host, on_devices(job, strategy), 1e-5);
  }
  CHECK(on_devices(job, "zero2").workers[0].model == on_devices(job, "zero2").workers[0].model);
}

TEST_CASE("workers on devices train with servers as workers on the host do") {
  struct Case {
    const char* strategy;
    const char* model;
    Links links;
    void (*change)(JobOptions&);
  };
  const auto [strategy, model, links, change] = GENERATE(values<Case>({
      {"ps", kMlp, Links::shm, [](JobOptions& job) { job.clip_norm = 0.05; }},
      {"ps", kGpt, Links::tcp, [](JobOptions& job) { job.accumulate = 2; }},
      {"ps", kGpt, Links::shm, [](JobOptions& job) { job.optimizer_on = "worker"; }},
      {"ps", kGpt, Links::shm, [](JobOptions& job) { job.precision = "bf16"; }},
      {"ps", kGpt, Links::shm, [](JobOptions& job) { job.precision = "f16"; }},
      {"ps-zero2", kGpt, Links::shm, [](JobOptions& job) { job.accumulate = 2; }},
      {"ps-zero2", kMlp, Links::tcp, [](JobOptions&) {}},
      {"ps-zero3", kGpt, Links::shm, [](JobOptions& job) { job.accumulate = 2; }},
      {"ps-zero3", kMlp, Links::tcp, [](JobOptions& job) { job.clip_norm = 0.05; }},
      {"ps-colocated", kGpt, Links::shm, [](JobOptions& job) { job.placement = "colocated"; }},
      {"dp", kMlp, Links::shm,
       [](JobOptions& job) {
         job.placement = "colocated";
         job.servers = 1;
         job.optimizer_on = "worker";
       }},
  }));
  JobOptions job = device_job(model, 2);
  job.strategy = strategy;
  job.servers = 2;
  change(job);
  CAPTURE(strategy, model, job.precision, job.accumulate, job.optimizer_on);
  const JobRun host = run_job(job, links);
  job.device = "cuda";
  const JobRun devices = run_job(job, links);
  check_like(host, devices, job.precision == "f32" ? 1e-5 : 2e-2);
  CHECK(devices.servers_received == host.servers_received);
  CHECK(devices.servers_sent == host.servers_sent);
  CHECK(devices.server_peaks == host.server_peaks);
  CHECK(run_job(job, links).workers[0].model == devices.workers[0].model);
}

TEST_CASE("servers on devices are bitwise identical to servers on the host") {
  struct Case {
    const char* strategy;
    void (*change)(JobOptions&);
  };
  const auto [strategy, change] = GENERATE(values<Case>({
      {"ps", [](JobOptions&) {}},
      {"ps", [](JobOptions& job) { job.clip_norm = 0.05; }},
      {"ps", [](JobOptions& job) { job.optimizer = "sgd"; }},
      {"ps", [](JobOptions& job) { job.precision = "bf16"; }},
      {"ps", [](JobOptions& job) { job.precision = "f16"; }},
      {"ps", [](JobOptions& job) { job.aggregate = "sum"; }},
      {"ps", [](JobOptions& job) { job.compress = "top-k"; }},
      {"ps-zero2", [](JobOptions& job) { job.accumulate = 2; }},
      {"ps-zero3",
       [](JobOptions& job) {
         job.precision = "bf16";
         job.master_copy = false;
         job.accumulate = 2;
       }},
  }));
  JobOptions job = device_job(kMlp, 3);
  job.strategy = strategy;
  job.servers = 2;
  change(job);
  CAPTURE(strategy, job.precision, job.optimizer, job.accumulate, job.compress);
  const JobRun host = run_job(job, Links::shm);
  job.server_device = "cuda";
  const JobRun device = run_job(job, Links::shm);
  for (std::size_t worker = 0; worker < 3; ++worker)
    CHECK((device.workers[worker].model == host.workers[worker].model));
  CHECK(device.servers_received == host.servers_received);
  for (const auto& peaks : device.server_peaks)
    for (const auto& [category, predicted] : device.predicted.server_memory) CHECK(peaks.at(category) == predicted);
}

TEST_CASE("a server on a device saves, and another goes on from there") {
  JobOptions job = device_job(kMlp, 2);
  job.strategy = "ps";
  job.servers = 2;
  const test::TemporaryFolder folder;
  JobOptions saving = job;
  saving.server_device = "cuda";
  saving.checkpoint_every = 2;
  saving.checkpoint_dir = folder.path();
  const JobRun whole = run_job(saving, Links::shm);
  for (const char* device : {"cpu", "cuda"}) {
    JobOptions resumed = job;
    resumed.server_device = device;
    resumed.resume = folder.file("step-00000002");
    CHECK((run_job(resumed, Links::shm).workers[0].model == whole.workers[0].model));
  }
}

TEST_CASE("workers and servers on devices") {
  JobOptions job = device_job(kGpt, 2);
  job.strategy = "ps";
  job.servers = 1;
  job.device = "cuda";
  const JobRun on_host = run_job(job, Links::shm);
  job.server_device = "cuda";
  CHECK((run_job(job, Links::shm).workers[0].model == on_host.workers[0].model));
}

TEST_CASE("a device holds what its strategy keeps there, and the host as much again on the way to servers") {
  JobOptions job = device_job(kGpt, 2);
  job.servers = 2;
  for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"}) {
    job.strategy = strategy;
    job.device = "cpu";
    auto host = run_job(job, Links::shm).workers[0].peaks;
    job.device = "cuda";
    auto device = run_job(job, Links::shm).workers[0].peaks;
    INFO(strategy);
    CHECK(device[Category::staging] ==
          host[Category::parameters] + host[Category::gradients] + host[Category::communication]);
    device.erase(Category::staging);
    host.erase(Category::activations);  // predicted on the host alone
    CHECK(device == host);
  }
}

TEST_CASE("workers on devices that wait for nobody") {
  const auto strategy = GENERATE(values({"ps-async", "ps-zero2", "ps-zero3"}));
  const auto consistency = GENERATE(values({"asp", "ssp:2"}));
  const std::size_t servers = GENERATE(1, 2);
  JobOptions job = device_job(kMlp, 2);
  job.strategy = strategy;
  job.consistency = consistency;
  job.servers = servers;
  if (job.strategy == "ps-async") job.clip_norm = 0.05;
  job.device = "cuda";
  job.steps = 20;
  CAPTURE(strategy, consistency, servers);
  check_ends_alike(run_job(job, Links::shm));
}

TEST_CASE("workers on devices that may be left out") {
  for (const char* strategy : {"ps", "ps-zero2"}) {
    JobOptions job = device_job(kMlp, 3);
    job.strategy = strategy;
    job.servers = 2;
    job.backup_workers = 1;
    job.device = "cuda";
    job.steps = 20;
    INFO(strategy);
    check_ends_alike(run_job(job, Links::shm));
  }
}

TEST_CASE("micro-batches, small buckets, no overlap, prefetch and shard groups on devices") {
  JobOptions job = device_job(kGpt, 4);
  job.steps = 3;
  job.units = "layer";
  job.accumulate = 2;
  job.global_batch = 16;
  const JobRun host = on_host(job);
  const auto check = [&](const char* strategy, auto change) {
    JobOptions changed = job;
    change(changed);
    INFO(strategy);
    check_like(host, on_devices(changed, strategy), 1e-5);
  };
  check("ddp", [](JobOptions& changed) { changed.bucket_bytes = 4096; });
  check("ddp", [](JobOptions& changed) { changed.overlap = false; });
  check("zero1", [](JobOptions& changed) { changed.bucket_bytes = 4096; });
  check("zero2", [](JobOptions&) {});
  for (const std::size_t prefetch : {0, 2}) check("zero3", [&](JobOptions& changed) { changed.prefetch = prefetch; });
  check("zero3", [](JobOptions& changed) { changed.reshard_after_forward = false; });
  for (const char* strategy : {"zero1", "zero3"})
    check(strategy, [](JobOptions& changed) { changed.shard_group = "2"; });
}

TEST_CASE("in 16 bit on devices") {
  for (const char* precision : {"bf16", "f16"}) {
    JobOptions job = device_job(kGpt, 2);
    job.precision = precision;
    const JobRun host = on_host(job);
    for (const char* strategy : {"ddp", "zero3"}) check_like(host, on_devices(job, strategy), 2e-2);
    job.comm_dtype = "f32";
    check_like(on_host(job), on_devices(job, "zero2"), 2e-2);
  }
}

TEST_CASE("rates of whole tensors on devices") {
  JobOptions job = device_job(kMlp, 3);
  job.optimizer = "lamb";
  const JobRun host = on_host(job);
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) check_like(host, on_devices(job, strategy), 1e-5);
  job.precision = "bf16";
  job.comm_dtype = "f32";
  job.clip_norm = 0.05;
  check_like(on_host(job), on_devices(job, "zero3"), 2e-2);
}

TEST_CASE("shards on devices go on from a checkpoint that another number of workers made on the host") {
  JobOptions job = device_job(kMlp, 2);
  const test::TemporaryFolder folder;
  JobOptions saving = job;
  saving.strategy = "zero3";
  saving.checkpoint_every = 2;
  saving.checkpoint_dir = folder.path();
  const JobRun whole = on_devices(saving, "zero3");
  JobOptions resumed = job;
  resumed.workers = 1;
  resumed.resume = folder.file("step-00000002");
  const JobRun rest = on_devices(resumed, "zero1");
  for (std::size_t i = 0; i < rest.workers[0].steps.size(); ++i)
    CHECK(rest.workers[0].steps[i].loss == Approx(losses(whole)[i + 2]).epsilon(1e-5));
}
