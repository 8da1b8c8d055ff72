// Dropout, convolutions, residual connections and real targets: the same bits however a model is trained.
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kConv = "conv:1x4x5-3c3-r3-p2-d0.25-7-5";
constexpr const char* kDropout = "mlp:20-d0.2-33-d0.5-17-5";
constexpr const char* kReal = "mse-mlp:20-33-d0.1-3";

JobOptions small_job(const char* model) {
  JobOptions job;
  job.model = model;
  job.data = "synthetic:samples=40";
  job.strategy = "single";
  job.workers = 1;
  job.servers = 0;
  job.global_batch = 12;
  job.steps = 7;
  job.seed = 5;
  job.optimizer = "adam";
  job.lr = 0.01;
  job.eval_every = 3;
  return job;
}

JobRun virtual_workers(JobOptions job, std::size_t workers) {
  job.virtual_workers = workers;
  return run_job(job);
}

std::vector<float> floats_of(const std::string& model) {
  std::uint64_t header = 0;
  std::memcpy(&header, model.data(), sizeof header);
  std::vector<float> values((model.size() - sizeof header - header) / sizeof(float));
  std::memcpy(values.data(), model.data() + sizeof header + header, values.size() * sizeof(float));
  return values;
}

/// Bytes and booked memory are as predicted, and the model's bits those of the reference.
void check_run(const JobRun& run, const JobRun& reference) {
  for (const test::WorkerRun& worker : run.workers) {
    CHECK((worker.model == reference.workers[0].model));
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
  }
}

}  // namespace

TEST_CASE("every strategy is bitwise identical to virtual workers") {
  const std::string model = GENERATE(values<std::string>({kConv, kDropout, kReal}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3}));
  JobOptions job = small_job(model.c_str());
  SECTION("plain") {}
  SECTION("micro-batches, with forward again") {
    job.accumulate = 2;
    job.activation_checkpointing = "unit";
  }
  SECTION("blocks") { job.units = "block"; }
  SECTION("a frozen first unit") { job.freeze = "0"; }
  const JobRun reference = virtual_workers(job, workers);
  job.workers = workers;
  for (const char* strategy : {"ddp", "zero1", "ps"}) {
    CAPTURE(model, workers, strategy);
    job.strategy = strategy;
    job.servers = job.strategy == "ps" ? 2 : 0;
    check_run(run_job(job, job.servers > 0 ? Links::in_process : Links::shm), reference);
  }
  job.accumulate_at = "owner";
  job.servers = 0;
  job.strategy = "single";
  job.workers = 1;
  const JobRun at_owner = virtual_workers(job, workers);
  job.accumulate_at = "local";
  job.workers = workers;
  for (const char* strategy : {"zero2", "zero3", "ps-zero3"}) {
    CAPTURE(model, workers, strategy);
    job.strategy = strategy;
    job.servers = job.strategy == "ps-zero3" ? 2 : 0;
    check_run(run_job(job, job.servers > 0 ? Links::in_process : Links::shm), at_owner);
  }
}

TEST_CASE("activation checkpointing and micro-batches draw the same random numbers") {
  for (const char* model : {kConv, kDropout}) {
    JobOptions job = small_job(model);
    const JobRun whole = run_job(job);
    job.activation_checkpointing = "unit";
    CHECK((run_job(job).workers[0].model == whole.workers[0].model));
    job.activation_checkpointing = "off";
    job.steps = 1;
    job.optimizer = "sgd";
    const std::vector<float> one = floats_of(run_job(job).workers[0].model);
    job.accumulate = 3;
    const std::vector<float> parts = floats_of(run_job(job).workers[0].model);
    job.accumulate = 1;
    const std::vector<float> workers = floats_of(virtual_workers(job, 4).workers[0].model);
    job.seed = 6;
    const std::vector<float> other = floats_of(run_job(job).workers[0].model);
    double most = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(parts[i] == Approx(one[i]).epsilon(1e-5).margin(1e-6));  // a sum in another order
      CHECK(workers[i] == Approx(one[i]).epsilon(1e-5).margin(1e-6));
      most = std::max(most, static_cast<double>(std::abs(other[i] - one[i])));
    }
    CHECK(most > 1e-3);
  }
}

TEST_CASE("all precisions train convolutions and real targets") {
  const std::string model = GENERATE(values<std::string>({kConv, kReal}));
  const std::string precision = GENERATE(values<std::string>({"bf16", "f16"}));
  JobOptions job = small_job(model.c_str());
  job.precision = precision;
  const JobRun reference = virtual_workers(job, 2);
  job.workers = 2;
  for (const char* strategy : {"ddp", "zero1"}) {
    CAPTURE(model, precision, strategy);
    job.strategy = strategy;
    check_run(run_job(job, Links::shm), reference);
  }
}

TEST_CASE("the loss of real targets falls") {
  JobOptions job = small_job("mse-mlp:4-32-2");
  job.data = "synthetic:samples=400";
  job.steps = 300;
  const JobRun run = run_job(job);
  const auto& steps = run.workers[0].steps;
  CHECK(steps.back().loss < 0.3 * steps.front().loss);
  CHECK(run.workers[0].evaluations.back().correct == 0);
}
