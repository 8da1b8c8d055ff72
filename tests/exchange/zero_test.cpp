// The stages of ZeRO change who keeps what, and when it moves: never what is learnt, and by the formulas.
#include <ostream>

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

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kBatchNorm = "bn-mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=3,dim=16,heads=2,context=8,vocab=31";

JobOptions small_job(const char* model) {
  JobOptions job = test::small_job(model, 9);
  job.servers = 0;
  job.weight_decay = 0.1;
  return job;
}

JobRun reference(JobOptions job, std::size_t workers, const std::string& strategy) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  if (strategy == "zero2" || strategy == "zero3") job.accumulate_at = "owner";
  return run_job(job);
}

JobRun zero(JobOptions job, std::size_t workers, const std::string& strategy, Links links = Links::shm) {
  job.strategy = strategy;
  job.workers = workers;
  return run_job(job, links);
}

/// Bits, bytes and memory.
void check_all(const JobRun& run, const JobRun& expected) {
  for (const test::WorkerRun& worker : run.workers) {
    CHECK((worker.model == expected.workers[0].model));
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

}  // namespace

TEST_CASE("each stage is bitwise identical to single with the same number of virtual workers") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = small_job(model);
  job.steps = 50;
  job.clip_norm = clip;
  const JobRun expected = reference(job, workers, "zero1");
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    CAPTURE(model, workers, clip, strategy);
    check_all(zero(job, workers, strategy), expected);
  }
}

TEST_CASE("micro-batches are added up locally in stage 1, by owners in stages 2 and 3") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3}));
  JobOptions job = small_job(model);
  job.global_batch = 18;
  job.accumulate = 3;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    CAPTURE(model, workers, strategy);
    check_all(zero(job, workers, strategy), reference(job, workers, strategy));
  }
  // The two orders differ, or this proves nothing.
  CHECK((reference(job, workers, "zero1").workers[0].model != reference(job, workers, "zero2").workers[0].model));
}

TEST_CASE("payload is what the design's rows say") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto n = GENERATE(values<std::size_t>({2, 3, 4}));
  const auto micros = GENERATE(values<std::size_t>({1, 3}));
  JobOptions job = small_job(model);
  job.global_batch = 12 * micros;
  job.accumulate = micros;
  const auto check_bytes = [&](const char* strategy, std::uint64_t gradients, std::uint64_t parameters) {
    CAPTURE(model, n, micros, strategy, job.reshard_after_forward);
    const JobRun run = zero(job, n, strategy);
    const std::uint64_t m = run.parameters * sizeof(float);  // Mg = Mp
    for (const test::WorkerRun& worker : run.workers) {
      CHECK(worker.sent == run.steps * (n - 1) * (gradients + parameters) * m / n);
      CHECK(worker.received == worker.sent);
      CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    }
  };
  check_bytes("zero1", 1, 1);
  check_bytes("zero2", micros, 1);
  check_bytes("zero3", micros, 2 * micros);
  job.reshard_after_forward = false;
  check_bytes("zero3", micros, micros);
}

TEST_CASE("memory is cut as each stage says") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto n = GENERATE(values<std::size_t>({2, 3, 4}));
  const auto rule = GENERATE(values<std::pair<std::string, std::uint64_t>>(
      {{"sgd", 0}, {"adagrad", 1}, {"rmsprop", 1}, {"adam", 2}, {"adamw", 2}, {"lamb", 2}}));
  JobOptions job = small_job(model);
  job.optimizer = rule.first;
  job.weight_decay.reset();
  job.steps = 3;
  const auto check_memory = [&](const char* strategy, std::size_t p, std::size_t g, std::size_t o) {
    CAPTURE(model, n, rule.first, strategy);
    const JobRun run = zero(job, n, strategy);
    const std::uint64_t bytes = run.parameters * sizeof(float);
    for (const test::WorkerRun& worker : run.workers) {
      CHECK(worker.peaks.at(Category::parameters) == bytes / p);
      CHECK(worker.peaks.at(Category::gradients) == bytes / g);
      CHECK(worker.peaks.at(Category::optimizer) == rule.second * bytes / o);
      CHECK(worker.peaks == worker.predicted.worker_memory);
    }
  };
  check_memory("ddp", 1, 1, 1);
  check_memory("zero1", 1, 1, n);
  check_memory("zero2", 1, n, n);
  check_memory("zero3", n, n, n);
}

TEST_CASE("prefetch, kept parameters, units, buckets and layerwise rules change no bit") {
  const auto model = GENERATE(values({kMlp, kBatchNorm, kGpt}));
  JobOptions job = small_job(model);
  SECTION("no prefetch") { job.prefetch = 0; }
  SECTION("two units ahead") { job.prefetch = 2; }
  SECTION("parameters stay") { job.reshard_after_forward = false; }
  SECTION("blocks") { job.units = "block"; }
  SECTION("small buckets") { job.bucket_bytes = 1024; }
  SECTION("no overlap") { job.overlap = false; }
  SECTION("LAMB, whose norms cross the owners' ranges") { job.optimizer = "lamb"; }
  SECTION("LAMB, clipped") {
    job.optimizer = "lamb";
    job.clip_norm = 0.05;
  }
  SECTION("uneven data") { job.pad = "none"; }
  SECTION("a last batch with fewer samples than micro-batches") {
    job.data = "synthetic:samples=41";  // of 12: five at the end, two a worker
    job.accumulate = 3;
    job.steps = 8;
  }
  SECTION("evaluation now and then") {
    job.eval_every = 2;
    job.data = "synthetic:samples=110";  // 11 to test: one worker has a batch more
    job.global_batch = 3;
  }
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    CAPTURE(model, strategy);
    check_all(zero(job, 3, strategy), reference(job, 3, strategy));
  }
}

TEST_CASE("units of any layers change no bit, and move and hold what is predicted") {
  const auto model = GENERATE(values({kGpt, "mlp:20-9-33-17-8-12-5"}));
  const auto units = GENERATE(values({"2", "root", "0+2", "2+0,1+4,3+5"}));
  JobOptions job = small_job(model);
  job.units = units;
  SECTION("plain") {}
  SECTION("two ahead, two micro-batches, clipped") {
    job.prefetch = 2;
    job.accumulate = 2;
    job.clip_norm = 0.05;
  }
  SECTION("none ahead, parameters stay") {
    job.prefetch = 0;
    job.reshard_after_forward = false;
  }
  const JobRun local = reference(job, 2, "zero1");
  const JobRun owner = reference(job, 2, "zero2");
  for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3", "ps", "ps-zero2", "ps-zero3"}) {
    const bool servers = strategy.starts_with("ps");
    if (job.accumulate > 1 && servers && strategy != "ps") continue;
    CAPTURE(model, units, strategy, job.prefetch);
    job.servers = servers ? 2 : 0;
    check_all(zero(job, 2, strategy), strategy == "zero2" || strategy == "zero3" ? owner : local);
  }
}

TEST_CASE("one unit of all: its peak is the whole model's") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  JobOptions job = small_job(model);
  job.units = "root";
  const auto communication = [&](const char* strategy) {
    const JobRun run = zero(job, 3, strategy);
    const std::uint64_t m = run.parameters * sizeof(float);
    return static_cast<double>(run.workers[0].peaks.at(Category::communication)) / static_cast<double>(m);
  };
  CHECK(communication("zero2") == 1);  // the gradient
  CHECK(communication("zero3") == 2);  // and the parameters
  job.servers = 2;
  CHECK(communication("ps-zero3") == 2);
}

TEST_CASE("values given at the start are cut among the owners") {
  JobOptions job = small_job(kGpt);
  const test::TemporaryFolder folder;
  job.init = test::write_file(folder.file("start.safetensors"), reference(job, 1, "zero1").workers[0].model);
  job.seed = 6;
  for (const char* strategy : {"zero1", "zero2", "zero3"})
    check_all(zero(job, 3, strategy), reference(job, 3, strategy));
}

TEST_CASE("over messages that are added in rank order the bits are the same") {
  JobOptions job = small_job(kGpt);
  job.algorithm = "exchange";
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    CAPTURE(strategy);
    const JobRun run = zero(job, 3, strategy, Links::in_process);
    const JobRun expected = reference(job, 3, strategy);
    if (run.predicted.same_bits) CHECK((run.workers[0].model == expected.workers[0].model));
    for (const test::WorkerRun& worker : run.workers) {
      CHECK((worker.model == run.workers[0].model));
      CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    }
  }
}

TEST_CASE("servers: what a worker does not keep changes no bit, and moves what the design's rows say") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp}));
  JobOptions job = small_job(model);
  std::uint64_t pulls = 2;
  SECTION("plain") {}
  SECTION("clipped: a gradient goes before the verdict comes") { job.clip_norm = 0.05; }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("two units ahead") { job.prefetch = 2; }
  SECTION("none ahead, blocks") {
    job.prefetch = 0;
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
    job.global_batch = 6;
  }
  for (const std::size_t workers : {1, 3}) {
    const JobRun expected = reference(job, workers, "ps");
    for (const std::size_t servers : {1, 2}) {
      job.servers = servers;
      for (const char* strategy : {"ps-zero2", "ps-zero3"}) {
        CAPTURE(model, int(links), workers, servers, strategy);
        const JobRun run = zero(job, workers, strategy, links);
        check_all(run, expected);
        const std::uint64_t m = run.parameters * sizeof(float);
        const std::uint64_t received = (std::string(strategy) == "ps-zero2" ? 1 : pulls) * m;
        for (const test::WorkerRun& worker : run.workers) {
          CHECK(worker.sent == run.steps * m);
          CHECK(worker.received == run.steps * received);
        }
        CHECK(run.servers_received == run.steps * workers * m);
        CHECK(run.servers_sent == run.steps * workers * received);
      }
    }
    job.servers = 0;
  }
}

TEST_CASE("servers: a file's values, through workers that keep none") {
  JobOptions job = small_job(kGpt);
  const test::TemporaryFolder folder;
  job.init = test::write_file(folder.file("start.safetensors"), reference(job, 1, "ps").workers[0].model);
  job.seed = 6;
  const JobRun expected = reference(job, 2, "ps");
  job.servers = 2;
  for (const char* strategy : {"ps-zero2", "ps-zero3"}) check_all(zero(job, 2, strategy), expected);
}

TEST_CASE("servers: micro-batches are pushed one by one, and added up by their owners") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp}));
  JobOptions job = small_job(model);
  job.global_batch = 18;
  job.accumulate = 3;
  std::uint64_t pulls = 6;
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("a last batch with fewer samples than micro-batches") {
    job.data = "synthetic:samples=59";
    job.steps = 8;
  }
  SECTION("parameters stay") {
    job.reshard_after_forward = false;
    pulls = 3;
  }
  for (const std::size_t workers : {1, 3}) {
    job.servers = 0;
    const JobRun expected = reference(job, workers, "zero2");
    for (const std::size_t servers : {1, 2}) {
      job.servers = servers;
      for (const char* strategy : {"ps-zero2", "ps-zero3"}) {
        CAPTURE(model, int(links), workers, servers, strategy);
        const JobRun run = zero(job, workers, strategy, links);
        check_all(run, expected);
        const std::uint64_t m = run.parameters * sizeof(float);
        const std::uint64_t received = (std::string(strategy) == "ps-zero2" ? 1 : pulls) * m;
        CHECK(run.servers_received == run.steps * workers * 3 * m);
        CHECK(run.servers_sent == run.steps * workers * received);
      }
    }
  }
}

TEST_CASE("servers: an optimizer on the worker needs gradients that stay") {
  JobOptions job = small_job(kMlp);
  job.servers = 1;
  job.optimizer_on = "worker";
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { zero(job, 2, "ps-zero3"); }), Catch::Contains("--optimizer-on"));
}
