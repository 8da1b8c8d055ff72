// A server in each worker's process and a few standalone ones, which own more: the same bits as single, the bytes and
// the memory of each role as predicted, and on the cards the load of BytePS' optimum.
#include <algorithm>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/step_bounds.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

// Units of 65, 129 and 6 blocks of 256 elements: shares differ, and remainders, too.
constexpr const char* kMlp = "mlp:64-256-128-10";
constexpr const char* kGpt = "gpt:layers=2,dim=32,heads=2,context=8,vocab=31";

JobRun reference(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  job.servers = 0;
  job.optimizer_on = "server";
  job.compress = "none";
  return run_job(job);
}

JobRun mixed(JobOptions job, std::size_t workers, std::size_t standalone, const std::string& strategy, Links links) {
  job.strategy = strategy;
  job.placement = "mixed";
  job.workers = workers;
  job.servers = workers + standalone;
  return run_job(job, links);
}

/// Bytes and memory of every role.
void check_predictions(const JobRun& run) {
  for (std::size_t rank = 0; rank < run.workers.size(); ++rank) {
    const test::WorkerRun& worker = run.workers[rank];
    CAPTURE(rank);
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
    CHECK(worker.predicted.own_server_receives.value() > 0);
  }
  CHECK(run.servers_received == run.steps * run.predicted.server_receives.value());
  CHECK(run.servers_sent == run.steps * run.predicted.server_sends.value());
  REQUIRE(run.server_peaks.size() == run.predicted.each_server_memory.size());
  for (std::size_t rank = 0; rank < run.server_peaks.size(); ++rank) {
    CAPTURE(rank);
    CHECK(run.server_peaks[rank] == run.predicted.each_server_memory[rank]);
  }
}

/// The same, and the bits of single.
void check_all(const JobRun& run, const JobRun& expected) {
  for (const test::WorkerRun& worker : run.workers) CHECK((worker.model == expected.workers[0].model));
  check_predictions(run);
}

}  // namespace

TEST_CASE("mixed servers are bitwise identical to single, for all shares") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({2, 3, 4}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = test::small_job(model, 5);
  job.weight_decay = 0.1;
  job.clip_norm = clip;
  const JobRun expected = reference(job, workers);
  for (std::size_t standalone = 1; standalone < workers; ++standalone)
    for (const Links links : {Links::shm, Links::shaped})
      for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"}) {
        CAPTURE(model, workers, clip, standalone, int(links), strategy);
        check_all(mixed(job, workers, standalone, strategy, links), expected);
      }
}

TEST_CASE("mixed: rules, types, micro-batches, units and links change no bit") {
  JobOptions job = test::small_job(kGpt, 5);
  std::string strategy = "ps";
  Links links = Links::shm;
  SECTION("bf16, gradients in f32") {
    job.precision = "bf16";
    job.comm_dtype = "f32";
  }
  SECTION("f16, clipped") {
    job.precision = "f16";
    job.clip_norm = 0.05;
  }
  SECTION("the optimizer on the worker, clipped") {
    job.optimizer_on = "worker";
    job.clip_norm = 0.05;
  }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("LAMB, parameters pulled for each pass") {
    job.optimizer = "lamb";
    strategy = "ps-zero3";
  }
  SECTION("blocks") { job.units = "block"; }
  SECTION("one unit") { job.units = "root"; }
  SECTION("micro-batches") { job.accumulate = 2; }
  SECTION("frozen units") { job.freeze = "0"; }
  SECTION("uneven data, evaluated now and then") {
    job.pad = "none";
    job.eval_every = 2;
    job.data = "synthetic:samples=110";
    job.global_batch = 6;
  }
  SECTION("plain TCP") { links = Links::tcp; }
  SECTION("encrypted TCP") { links = Links::tcp_encrypted; }
  SECTION("server threads") { job.server_threads = 2; }
  check_all(mixed(job, 3, 1, strategy, links), reference(job, 3));
}

TEST_CASE("mixed: compressed pushes, stale gradients and late workers, in bytes and memory") {
  JobOptions job = test::small_job(kMlp, 5);
  SECTION("signs") { job.compress = "sign"; }
  SECTION("top-k, without error feedback") {
    job.compress = "top-k:ratio=0.05";
    job.error_feedback = false;
  }
  SECTION("ssp") { job.consistency = "ssp:1"; }
  SECTION("asp, with delay compensation") {
    job.consistency = "asp";
    job.remedy = "dc-asgd";
  }
  check_predictions(mixed(job, 4, 2, "ps", Links::shm));
}

TEST_CASE("mixed: the busiest card carries the bytes of BytePS' optimum, fewer than at both ends") {
  const auto workers = GENERATE(values<std::size_t>({3, 4, 6}));
  JobOptions job = test::small_job("mlp:256-1024-10", 2);
  for (std::size_t standalone = 1; standalone < workers; ++standalone) {
    CAPTURE(workers, standalone);
    const JobRun run = mixed(job, workers, standalone, "ps", Links::shm);
    check_predictions(run);
    const auto n = static_cast<double>(workers);
    const auto k = static_cast<double>(standalone);
    const auto bytes = static_cast<double>(run.parameters * sizeof(float));
    double worker_card = 0;
    double guests = 0;
    for (const test::WorkerRun& worker : run.workers) {
      const auto sends = static_cast<double>(*worker.predicted.worker_sends + *worker.predicted.own_server_sends);
      const auto takes = static_cast<double>(*worker.predicted.worker_receives + *worker.predicted.own_server_receives);
      CHECK(sends == takes);
      worker_card = std::max(worker_card, sends);
      guests += static_cast<double>(*worker.predicted.own_server_receives);
    }
    const double server_card = (static_cast<double>(*run.predicted.server_receives) - guests) / k;
    const double optimum = test::byteps_optimum_s(n, k, bytes, 1);
    CHECK(worker_card == Approx(optimum).epsilon(0.02));
    CHECK(server_card == Approx(optimum).epsilon(0.02));
    CHECK(std::max(worker_card, server_card) < test::byteps_optimum_s(n, 0, bytes, 1));  // all colocated
    CHECK(std::max(worker_card, server_card) < test::server_bound_s(n, k, bytes, 1));    // the standalone ones alone
  }
}
