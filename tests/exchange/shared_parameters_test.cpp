// --share-host-parameters: parameters lie once on a host, and are read there: the bits of zero3, and nothing gathered.
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kBatchNorm = "bn-mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=3,dim=16,heads=2,context=8,vocab=31";

JobOptions small_job(const char* model, std::size_t workers) {
  JobOptions job = test::small_job(model, 9);
  job.strategy = "zero3";
  job.workers = workers;
  job.servers = 0;
  job.weight_decay = 0.1;
  job.share_host_parameters = true;
  return job;
}

JobRun gathered(JobOptions job) {
  job.share_host_parameters = false;
  return run_job(job, Links::shm);
}

/// The bits of gathered ones, and bytes and memory as predicted.
void check_all(const JobRun& made, const JobRun& expected) {
  for (std::size_t rank = 0; rank < made.workers.size(); ++rank) {
    const test::WorkerRun& worker = made.workers[rank];
    CHECK((worker.model == expected.workers[rank].model));
    CHECK(worker.evaluations.back().loss_sum == expected.workers[rank].evaluations.back().loss_sum);
    CHECK(worker.sent == made.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == made.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
    CHECK(worker.predicted.same_bits == expected.workers[rank].predicted.same_bits);
  }
}

}  // namespace

TEST_CASE("parameters that are read in place are bitwise identical to gathered ones") {
  const auto model = GENERATE(values({kMlp, kBatchNorm, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4}));
  JobOptions job = small_job(model, workers);
  SECTION("fifty steps") { job.steps = 50; }
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("LAMB, clipped") {
    job.optimizer = "lamb";
    job.clip_norm = 0.05;
  }
  SECTION("micro-batches") {
    job.global_batch = 36;
    job.accumulate = 3;
  }
  SECTION("blocks, evaluated now and then") {
    job.units = "block";
    job.eval_every = 2;
  }
  SECTION("one unit of all, layers again for backward") {
    job.units = "root";
    job.activation_checkpointing = "unit";
  }
  SECTION("uneven data") { job.pad = "none"; }
  CAPTURE(model, workers);
  check_all(run_job(job, Links::shm), gathered(job));
}

TEST_CASE("in 16 bit, too, with skipped steps") {
  const auto precision = GENERATE(values({"bf16", "f16"}));
  JobOptions job = small_job(kGpt, 4);
  job.precision = precision;
  if (precision == std::string("f16")) job.loss_scale = "dynamic";
  job.steps = 20;
  SECTION("with a copy in f32") {}
  SECTION("without") { job.master_copy = false; }
  check_all(run_job(job, Links::shm), gathered(job));
}

TEST_CASE("in groups, each of which has them once") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto group = GENERATE(values({"1", "2", "4"}));
  JobOptions job = small_job(model, 4);
  job.shard_group = group;
  job.clip_norm = 0.05;
  job.global_batch = 24;
  job.accumulate = 2;
  check_all(run_job(job, Links::shm), gathered(job));
  job.shard_group = "host";
  check_all(run_job(job, Links::shm, nullptr, {0, 2}), run_job(job, Links::shm, nullptr, {0, 2}));
}

TEST_CASE("nothing is gathered, and nobody has a copy") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto n = GENERATE(values<std::size_t>({2, 4}));
  const JobOptions job = small_job(model, n);
  const JobRun made = run_job(job, Links::shm);
  const JobRun expected = gathered(job);
  const std::uint64_t m = made.parameters * sizeof(float);
  for (std::size_t rank = 0; rank < n; ++rank) {
    const test::WorkerRun& worker = made.workers[rank];
    CHECK(worker.sent == made.steps * (n - 1) * m / n);
    CHECK(expected.workers[rank].sent == worker.sent + made.steps * 2 * (n - 1) * m / n);
    CHECK(worker.peaks.at(Category::parameters) == m / n);
    JobOptions gradients_alone = job;
    gradients_alone.strategy = "zero2";
    CHECK(worker.peaks.at(Category::communication) ==
          gathered(gradients_alone).workers[rank].peaks.at(Category::communication));
  }
}

TEST_CASE("values given at the start, and a checkpoint, are cut among the owners") {
  JobOptions job = small_job(kGpt, 2);
  const test::TemporaryFolder folder;
  job.init = test::write_file(folder.file("start.safetensors"), gathered(small_job(kGpt, 1)).workers[0].model);
  job.seed = 6;
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.path();
  const JobRun undisturbed = run_job(job, Links::shm);
  check_all(undisturbed, [&] {
    JobOptions plain = job;
    plain.checkpoint_every = 0;
    return gathered(plain);
  }());
  const bool in_place = GENERATE(true, false);
  job.init.clear();
  job.checkpoint_every = 0;
  job.share_host_parameters = in_place;
  job.resume = folder.file("step-00000004");
  CHECK((run_job(job, Links::shm).workers[0].model == undisturbed.workers[0].model));
}

TEST_CASE("workers that share no memory are refused") {
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(small_job(kMlp, 2), Links::in_process); }),
             Contains("--share-host-parameters") && Contains("share no memory"));
}
