// Parameter servers change where the arithmetic happens, and nothing else.
#include <cstring>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/rounding.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/safetensors.h>

using namespace psring;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kBatchNorm = "bn-mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";

/// 6 samples a step, so that 1, 2 and 3 workers divide it; 40 samples, so that the last batch is short.
JobOptions small_job(const char* model = kMlp) {
  JobOptions job;
  job.model = model;
  job.data = "synthetic:samples=40";
  job.workers = 1;
  job.servers = 1;
  job.global_batch = 6;
  job.steps = 9;
  job.seed = 5;
  job.optimizer = "sgd";
  job.momentum = 0.9;
  job.lr = 0.05;
  return job;
}

JobRun virtual_workers(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.workers = 1;
  job.virtual_workers = workers;
  job.servers = 0;
  job.optimizer_on = "server";
  return run_job(job);
}

JobRun parameter_servers(JobOptions job, std::size_t workers, std::size_t servers, Links links = Links::in_process) {
  job.strategy = "ps";
  job.workers = workers;
  job.servers = servers;
  return run_job(job, links);
}

JobRun data_parallel(JobOptions job, std::size_t workers, Links links, const char* strategy = "ddp") {
  job.strategy = strategy;
  job.workers = workers;
  job.servers = 0;
  return run_job(job, links);
}

/// All workers of `run` hold the bits of the reference.
void check_same(const JobRun& run, const JobRun& reference) {
  for (const test::WorkerRun& worker : run.workers) CHECK((worker.model == reference.workers[0].model));
}

/// The loss over all workers of each step: a sum over other groups of the same samples.
void check_losses(const JobRun& run, const JobRun& reference) {
  const auto& expected = reference.workers[0].steps;
  for (std::size_t step = 0; step < expected.size(); ++step) {
    double sum = 0;
    std::size_t samples = 0;
    for (const test::WorkerRun& worker : run.workers) {
      REQUIRE(worker.steps.size() == expected.size());
      sum += worker.steps[step].loss * static_cast<double>(worker.steps[step].samples);
      samples += worker.steps[step].samples;
    }
    CHECK(samples == expected[step].samples);
    CHECK(sum / static_cast<double>(samples) == Approx(expected[step].loss).epsilon(1e-12));
  }
}

/// Bound on the error of a sample's loss if its products are added in another order: the models here pass a sample
/// through sums of at most 512 terms one after the other, of sizes around 1, and the loss moves by at most twice what
/// a logit does. A sample that is missed or read twice moves the sum by about 1.
double loss_bound() { return 2 * test::f32_order_bound(512); }

/// The workers' counts together are the reference's, and each sample was read once. Workers evaluate fewer rows at a
/// time than one process, so their kernels may add in another order.
void check_evaluations(const JobRun& run, const JobRun& reference) {
  const auto& expected = reference.workers[0].evaluations;
  REQUIRE(run.workers[0].evaluations.size() == expected.size());
  for (std::size_t e = 0; e < expected.size(); ++e) {
    Evaluation sum;
    for (const test::WorkerRun& worker : run.workers) {
      if (worker.evaluations.empty()) continue;  // worker 0 alone evaluated
      CHECK(worker.evaluations[e].step == expected[e].step);
      sum.rows += worker.evaluations[e].rows;
      sum.correct += worker.evaluations[e].correct;
      sum.loss_sum += worker.evaluations[e].loss_sum;
    }
    CHECK(sum.rows == run.test_samples);
    CHECK(sum.correct == expected[e].correct);
    CHECK(sum.loss_sum == Approx(expected[e].loss_sum).epsilon(0).margin(static_cast<double>(sum.rows) * loss_bound()));
  }
}

/// A saved model's values.
std::vector<float> floats_of(const std::string& model) {
  std::uint64_t header = 0;
  std::memcpy(&header, model.data(), sizeof header);
  std::vector<float> values((model.size() - sizeof header - header) / sizeof(float));
  std::memcpy(values.data(), model.data() + sizeof header + header, values.size() * sizeof(float));
  return values;
}

void use_optimizer(JobOptions& job, const std::string& name) {
  job.optimizer = name;
  job.momentum = name == "sgd" ? std::optional<double>(0.9) : std::nullopt;
  job.lr = name == "sgd" ? 0.05 : 0.01;
  if (name == "adamw") job.weight_decay = 0.1;
}

}  // namespace

TEST_CASE("ps is bitwise identical to single with the same number of virtual workers, over every transport") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3}));
  const JobOptions job = small_job(model);
  const JobRun reference = virtual_workers(job, workers);
  for (const std::size_t servers : {1, 2, 3}) {
    for (const Links links : {Links::in_process, Links::shm, Links::tcp}) {
      CAPTURE(model, workers, servers, int(links));
      const JobRun run = parameter_servers(job, workers, servers, links);
      check_same(run, reference);
      check_losses(run, reference);
    }
  }
}

TEST_CASE("encryption changes no bit") {
  const JobOptions job = small_job();
  check_same(parameter_servers(job, 2, 2, Links::tcp_encrypted), virtual_workers(job, 2));
}

TEST_CASE("training moves the parameters, and other workers' samples matter") {
  const JobOptions job = small_job();
  JobOptions longer = job;
  longer.steps = 10;
  const std::string model = virtual_workers(job, 2).workers[0].model;
  CHECK((model != virtual_workers(longer, 2).workers[0].model));
  CHECK((model != virtual_workers(job, 1).workers[0].model));
}

TEST_CASE("every optimizer, clipped or not, on servers or workers, gives the same bits") {
  const auto name = GENERATE(values<std::string>({"sgd", "adagrad", "rmsprop", "adam", "adamw", "lamb"}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = small_job();
  use_optimizer(job, name);
  job.clip_norm = clip;
  const JobRun reference = virtual_workers(job, 2);
  for (const char* where : {"server", "worker"}) {
    job.optimizer_on = where;
    for (const std::size_t servers : {1, 3}) {
      CAPTURE(name, clip, where, servers);
      check_same(parameter_servers(job, 2, servers), reference);
    }
  }
}

TEST_CASE("verdicts travel over every transport") {
  JobOptions job = small_job(kGpt);
  use_optimizer(job, "lamb");
  job.clip_norm = 0.5;
  const JobRun reference = virtual_workers(job, 2);
  for (const Links links : {Links::shm, Links::tcp}) check_same(parameter_servers(job, 2, 3, links), reference);
}

TEST_CASE("micro-batches, units, order, schedule and server threads give the same bits") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  JobOptions job = small_job(model);
  use_optimizer(job, "adam");
  SECTION("accumulate") {
    job.global_batch = 18;
    job.accumulate = 3;
  }
  SECTION("a batch that micro-batches do not divide") {
    job.global_batch = 12;
    job.accumulate = 3;
  }
  SECTION("units") { job.units = "block"; }
  SECTION("file order") { job.shuffle = "none"; }
  SECTION("no padding") { job.pad = "none"; }
  SECTION("schedule") { job.schedule = "cosine:warmup=3,min=0.1"; }
  SECTION("server threads") { job.server_threads = 3; }
  SECTION("compute threads") { job.threads = 2; }
  for (const std::size_t workers : {2, 3}) {
    CAPTURE(model, workers);
    check_same(parameter_servers(job, workers, 2), virtual_workers(job, workers));
  }
}

TEST_CASE("workers whose data ends early go on with the others, and every sample weighs the same") {
  const auto samples = GENERATE(values<std::size_t>({36, 37, 38, 40, 41}));
  const auto workers = GENERATE(values<std::size_t>({2, 3}));
  const auto model = GENERATE(values({kMlp, kBatchNorm, kGpt}));
  JobOptions job = small_job(model);
  job.data = "synthetic:samples=" + std::to_string(samples);
  job.pad = "none";
  job.steps = 2 * ((samples + 5) / 6);  // two epochs, each with its last batch
  SECTION("plain") {}
  SECTION("micro-batches") { job.accumulate = 2; }
  SECTION("clipped") { job.clip_norm = 0.05; }
  CAPTURE(samples, workers, model);
  const JobRun reference = virtual_workers(job, workers);
  for (const char* strategy : {"ddp", "ddp-naive"}) {
    const JobRun run = data_parallel(job, workers, Links::shm, strategy);
    check_same(run, reference);
    check_losses(run, reference);
    for (const test::WorkerRun& worker : run.workers)
      CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
  }
  for (const char* where : {"server", "worker"}) {
    job.optimizer_on = where;
    const JobRun run = parameter_servers(job, workers, 2);
    CHECK((run.workers[0].model == reference.workers[0].model));
    check_losses(run, reference);
  }
  // Each sample once an epoch; where no statistics of a batch count, as one worker does it.
  std::size_t seen = 0;
  for (const StepReport& step : reference.workers[0].steps) seen += step.samples;
  CHECK(seen == 2 * samples);
  if (std::string(model) == kBatchNorm) return;
  const std::vector<float> values = floats_of(reference.workers[0].model);
  const std::vector<float> alone = floats_of(virtual_workers(job, 1).workers[0].model);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(alone[i]).epsilon(1e-3).margin(1e-5));
}

TEST_CASE("padding changes nothing where all have as many samples") {
  JobOptions job = small_job();
  job.data = "synthetic:samples=42";
  const JobRun wrapped = virtual_workers(job, 3);
  job.pad = "none";
  check_same(virtual_workers(job, 3), wrapped);
}

TEST_CASE("units change what moves together, not what is learnt") {
  JobOptions job = small_job(kGpt);
  const JobRun layers = parameter_servers(job, 2, 2);
  job.units = "block";
  check_same(parameter_servers(job, 2, 2), layers);
}

TEST_CASE("values given at the start are those that servers start from") {
  JobOptions job = small_job();
  job.steps = 4;
  const JobRun first = virtual_workers(job, 1);
  const test::TemporaryFolder folder;
  job.init = test::write_file(folder.file("start.safetensors"), first.workers[0].model);
  job.seed = 6;
  const JobRun reference = virtual_workers(job, 2);
  CHECK((reference.workers[0].model != virtual_workers(small_job(), 2).workers[0].model));
  for (const Links links : {Links::in_process, Links::shm, Links::tcp})
    check_same(parameter_servers(job, 2, 3, links), reference);
  job.optimizer_on = "worker";
  check_same(parameter_servers(job, 2, 3), reference);
}

TEST_CASE("a rerun has the same bits") {
  JobOptions job = small_job(kGpt);
  use_optimizer(job, "adamw");
  for (const Links links : {Links::in_process, Links::shm, Links::tcp}) {
    const JobRun first = parameter_servers(job, 3, 2, links);
    check_same(parameter_servers(job, 3, 2, links), first);
  }
}

TEST_CASE("evaluation reads each test sample once, whoever does it") {
  JobOptions job = small_job();
  job.data = "synthetic:samples=110";
  job.eval_every = 4;
  const JobRun alone = virtual_workers(job, 1);
  REQUIRE(alone.test_samples == 11);
  for (const std::size_t workers : {2, 3}) {
    const JobRun run = parameter_servers(job, workers, 2);
    const JobRun reference = virtual_workers(job, workers);
    REQUIRE(reference.workers[0].evaluations.size() == 3);
    for (const test::WorkerRun& worker : run.workers) CHECK(worker.evaluations.size() == 3);
    check_evaluations(run, reference);
  }
  const auto& evaluations = alone.workers[0].evaluations;
  REQUIRE(evaluations.size() == 3);
  CHECK(evaluations[0].step == 4);
  CHECK(evaluations[1].step == 8);
  CHECK(evaluations[2].step == 9);
}

TEST_CASE("payload is what the strategy predicts, and what the design's formula says") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp}));
  JobOptions job = small_job(model);
  SECTION("plain") {}
  SECTION("clipped LAMB: verdicts are control") {
    use_optimizer(job, "lamb");
    job.clip_norm = 0.1;
  }
  SECTION("the optimizer on the workers") { job.optimizer_on = "worker"; }
  SECTION("micro-batches add up before they leave") {
    job.global_batch = 18;
    job.accumulate = 3;
  }
  SECTION("evaluation moves nothing") { job.eval_every = 2; }
  for (const std::size_t workers : {1, 3}) {
    for (const std::size_t servers : {1, 2}) {
      CAPTURE(model, workers, servers, int(links));
      const JobRun run = parameter_servers(job, workers, servers, links);
      const std::uint64_t bytes = run.parameters * sizeof(float);  // Mg = Mp
      CHECK(run.predicted.worker_sends == bytes);
      CHECK(run.predicted.worker_receives == bytes);
      CHECK(run.predicted.server_receives == workers * bytes);
      CHECK(run.predicted.server_sends == workers * bytes);
      for (const test::WorkerRun& worker : run.workers) {
        CHECK(worker.sent == bytes * run.steps);
        CHECK(worker.received == bytes * run.steps);
      }
      CHECK(run.servers_received == workers * bytes * run.steps);
      CHECK(run.servers_sent == workers * bytes * run.steps);
    }
  }
}

TEST_CASE("a role that fails ends the whole job with its error") {
  JobOptions job = small_job();
  job.aggregate = "trimmed-mean:k=1";  // two workers leave nothing
  for (const Links links : {Links::in_process, Links::shm, Links::tcp})
    CHECK_THAT(test::error_of(ErrorKind::usage, [&] { parameter_servers(job, 2, 2, links); }),
               Catch::Contains("trimmed-mean"));
}

TEST_CASE("ddp in shared memory is bitwise identical to single with the same number of virtual workers") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3, 4, 6}));
  const auto strategy = GENERATE(values<std::string>({"ddp", "ddp-naive"}));
  const auto clip = GENERATE(values({0.0, 0.05}));
  JobOptions job = small_job(model);
  job.clip_norm = clip;
  const JobRun reference = virtual_workers(job, workers);
  job.strategy = strategy;
  job.workers = workers;
  job.servers = 0;
  for (const std::size_t bucket : {std::size_t{1}, std::size_t{4096}, std::size_t{25} << 20}) {
    for (const char* order : {"reverse", "forward"}) {
      for (const bool overlap : {true, false}) {
        CAPTURE(model, workers, strategy, bucket, order, overlap);
        job.bucket_bytes = bucket;
        job.bucket_order = order;
        job.overlap = overlap;
        const JobRun run = run_job(job, Links::shm);
        check_same(run, reference);
        check_losses(run, reference);
        for (const test::WorkerRun& worker : run.workers) {
          CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
          CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
        }
      }
    }
  }
}

TEST_CASE("batch norm's buffers are worker 0's, with each way of training") {
  const auto workers = GENERATE(values<std::size_t>({1, 2, 3}));
  JobOptions job = small_job(kBatchNorm);
  job.data = "synthetic:samples=70";
  job.eval_every = 4;
  SECTION("plain") {}
  SECTION("micro-batches") {
    job.global_batch = 18;
    job.accumulate = 3;
  }
  SECTION("blocks") { job.units = "block"; }
  SECTION("a file's values") {
    job.steps = 5;
    const test::TemporaryFolder folder;
    const std::string start = virtual_workers(job, 2).workers[0].model;
    job.init = test::write_file(folder.file("start.safetensors"), start);
    job.seed = 6;
    const JobRun reference = virtual_workers(job, workers);
    CHECK((reference.workers[0].model != start));
    check_same(data_parallel(job, workers, Links::shm), reference);
    CHECK((parameter_servers(job, workers, 2).workers[0].model == reference.workers[0].model));
    return;
  }
  const JobRun reference = virtual_workers(job, workers);
  job.algorithm = "exchange";  // of messages: sums in rank order
  for (const char* strategy : {"ddp", "ddp-naive"}) {
    for (const Links links : {Links::shm, Links::in_process}) {
      CAPTURE(workers, strategy, int(links));
      const JobRun run = data_parallel(job, workers, links, strategy);
      check_same(run, reference);
      check_losses(run, reference);
      check_evaluations(run, reference);
      for (const test::WorkerRun& worker : run.workers) {
        CHECK(worker.evaluations.size() == 3);
        CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
        CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
      }
    }
  }
  for (const char* where : {"server", "worker"}) {
    job.optimizer_on = where;
    const JobRun run = parameter_servers(job, workers, 2);
    CHECK((run.workers[0].model == reference.workers[0].model));
    check_losses(run, reference);
    check_evaluations(run, reference);
    for (std::size_t rank = 1; rank < workers; ++rank) CHECK(run.workers[rank].evaluations.empty());
    for (const test::WorkerRun& worker : run.workers)
      CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
  }
}

TEST_CASE("buffers change while training, and evaluation depends on them") {
  JobOptions job = small_job(kBatchNorm);
  const JobRun run = virtual_workers(job, 1);
  const test::TemporaryFolder folder;
  const worker::TensorFile file(test::write_file(folder.file("model.safetensors"), run.workers[0].model));
  const worker::TensorEntry* count = file.find("norms.1.num_batches_tracked");
  REQUIRE(count != nullptr);
  CHECK(count->shape.empty());
  std::vector<float> value(1);
  file.read(*count, 0, value);
  CHECK(value[0] == 9);
  std::vector<float> variance(33);
  file.read(*file.find("norms.0.running_var"), 0, variance);
  CHECK(variance != std::vector<float>(33, 1.0F));
}
