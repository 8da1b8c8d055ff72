// Servers in workers' processes: what is learnt is the same, and less moves, by the formulas of each role.
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";

JobOptions small_job(const char* model) {
  JobOptions job = test::small_job(model, 7);
  job.weight_decay = 0.1;
  return job;
}

JobRun reference(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  job.servers = 0;
  job.optimizer_on = "server";
  return run_job(job);
}

JobRun colocated(JobOptions job, std::size_t workers, std::size_t servers, const std::string& strategy, Links links) {
  job.strategy = strategy;
  job.placement = "colocated";
  job.workers = workers;
  job.servers = servers;
  return run_job(job, links);
}

/// Bits; bytes by the design's rows, and as predicted; memory of both roles.
void check_all(const JobRun& run, const JobRun& expected, std::size_t servers, std::uint64_t pulls,
               std::uint64_t bytes_each = 4) {
  const std::uint64_t m = run.parameters * bytes_each;  // Mg = Mp
  const std::size_t n = run.workers.size();
  for (std::size_t rank = 0; rank < n; ++rank) {
    const test::WorkerRun& worker = run.workers[rank];
    CAPTURE(rank);
    CHECK((worker.model == expected.workers[0].model));
    const std::uint64_t to_others = rank < servers ? m / servers * (servers - 1) : m;
    CHECK(worker.sent == run.steps * to_others);
    CHECK(worker.received == run.steps * pulls * to_others);
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
  CHECK(run.servers_received == run.steps * (n - 1) * m);
  CHECK(run.servers_sent == run.steps * pulls * (n - 1) * m);
  CHECK(run.servers_received == run.steps * run.predicted.server_receives.value());
  CHECK(run.servers_sent == run.steps * run.predicted.server_sends.value());
  REQUIRE(run.server_peaks.size() == servers);
  for (const auto& peaks : run.server_peaks) CHECK(peaks == run.predicted.server_memory);
}

}  // namespace

TEST_CASE("a server in s of n workers' processes: the bits of single, the bytes of what leaves a process") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = small_job(model);
  job.clip_norm = clip;
  const JobRun expected = reference(job, workers);
  for (std::size_t servers = 1; servers <= workers; ++servers)
    for (const Links links : {Links::shm, Links::shaped}) {
      CAPTURE(model, workers, clip, servers, int(links));
      check_all(colocated(job, workers, servers, "ps-colocated", links), expected, servers, 1);
    }
}

TEST_CASE("colocated: rules, layerwise or on the worker, units, data and links change no bit") {
  JobOptions job = small_job(kGpt);
  Links links = Links::shm;
  std::uint64_t bytes_each = 4;
  SECTION("bf16") {
    job.precision = "bf16";
    bytes_each = 2;
  }
  SECTION("f16, clipped") {
    job.precision = "f16";
    job.clip_norm = 0.05;
    bytes_each = 2;
  }
  SECTION("the optimizer on the worker") { job.optimizer_on = "worker"; }
  SECTION("the optimizer on the worker, clipped") {
    job.optimizer_on = "worker";
    job.clip_norm = 0.05;
  }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("blocks") { job.units = "block"; }
  SECTION("micro-batches") { job.accumulate = 2; }
  SECTION("uneven data, evaluated now and then") {
    job.pad = "none";
    job.eval_every = 2;
    job.data = "synthetic:samples=110";
    job.global_batch = 6;
  }
  SECTION("plain TCP") { links = Links::tcp; }
  SECTION("encrypted TCP") { links = Links::tcp_encrypted; }
  SECTION("server threads") { job.server_threads = 2; }
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(servers);
    check_all(colocated(job, 3, servers, "ps-colocated", links), reference(job, 3), servers, 1, bytes_each);
  }
}

TEST_CASE("colocated: workers that keep no gradient, or no parameters either") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  JobOptions job = small_job(model);
  std::uint64_t pulls = 2;
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("two units ahead, blocks") {
    job.prefetch = 2;
    job.units = "block";
  }
  SECTION("parameters stay") {
    job.reshard_after_forward = false;
    pulls = 1;
  }
  SECTION("uneven data, evaluated now and then") {
    job.pad = "none";
    job.eval_every = 2;
    job.data = "synthetic:samples=110";
  }
  for (const std::size_t workers : {1, 2, 3, 4}) {
    const JobRun expected = reference(job, workers);
    for (const std::size_t servers : {std::size_t{1}, (workers + 1) / 2, workers})
      for (const Links links : {Links::shm, Links::shaped}) {
        CAPTURE(model, workers, servers, int(links));
        check_all(colocated(job, workers, servers, "ps-zero2", links), expected, servers, 1);
        check_all(colocated(job, workers, servers, "ps-zero3", links), expected, servers, pulls);
      }
  }
}

TEST_CASE("dp: one server in worker 0, which reads for all and sends the others their samples") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4}));
  JobOptions job = small_job(model);
  job.optimizer_on = "worker";
  job.steps = 13;  // two epochs, each with a short batch at its end, and one step more
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("the optimizer on the server") { job.optimizer_on = "server"; }
  SECTION("micro-batches") { job.accumulate = 2; }
  SECTION("uneven data") { job.pad = "none"; }
  const JobRun expected = reference(job, workers);
  const std::size_t each = job.global_batch / workers;
  const std::size_t lists = (70 + workers - 1) / workers;  // a worker's samples in an epoch
  const std::size_t batches = (lists + each - 1) / each;
  for (const Links links : {Links::shm, Links::shaped}) {
    CAPTURE(model, workers, int(links));
    const JobRun run = colocated(job, workers, 1, "dp", links);
    const std::uint64_t m = run.parameters * sizeof(float);
    // Targets: a class, or a context's tokens.
    const std::uint64_t sample = std::string(model) == kMlp ? 4 * (20 + 1) : 4 * (8 + 8);
    std::uint64_t sent = 0;
    for (std::size_t rank = 1; rank < workers; ++rank) {
      const test::WorkerRun& worker = run.workers[rank];
      std::uint64_t samples = 0;
      for (std::uint64_t step = 0; step < run.steps; ++step) {
        const std::size_t mine = job.pad == "none" ? (70 - rank - 1) / workers + 1 : lists;
        const std::size_t begin = std::min(mine, step % batches * each);
        samples += std::min(each, mine - begin);
      }
      sent += samples * sample;
      CHECK(worker.sent == run.steps * m);
      CHECK(worker.received == run.steps * m + samples * sample);
      CHECK(worker.received == run.steps * worker.predicted.worker_receives.value() + worker.predicted.run_receives);
    }
    CHECK(run.workers[0].sent == sent);
    CHECK(run.workers[0].sent == run.steps * run.predicted.worker_sends.value() + run.predicted.run_sends);
    CHECK(run.workers[0].received == 0);
    CHECK(run.servers_received == run.steps * (workers - 1) * m);
    for (const test::WorkerRun& worker : run.workers) {
      CHECK((worker.model == expected.workers[0].model));
      CHECK(worker.peaks == worker.predicted.worker_memory);
    }
  }
}

TEST_CASE("colocated: a file's values come from worker 0") {
  JobOptions job = small_job(kGpt);
  const test::TemporaryFolder folder;
  job.init = test::write_file(folder.file("start.safetensors"), reference(job, 1).workers[0].model);
  job.seed = 6;
  const JobRun expected = reference(job, 2);
  check_all(colocated(job, 2, 2, "ps-colocated", Links::shm), expected, 2, 1);
  check_all(colocated(job, 2, 2, "ps-zero2", Links::shm), expected, 2, 1);
  check_all(colocated(job, 2, 2, "ps-zero3", Links::shm), expected, 2, 2);
}
