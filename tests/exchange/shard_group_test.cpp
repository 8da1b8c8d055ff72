// --shard-group: units are cut among the workers of a group, and groups are replicas: what is learnt is the same.
#include <cmath>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/model/safetensors.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=3,dim=16,heads=2,context=8,vocab=31";

JobOptions small_job(const char* model, std::size_t workers, const std::string& group) {
  JobOptions job = test::small_job(model, 9);
  job.workers = workers;
  job.servers = 0;
  job.weight_decay = 0.1;
  job.shard_group = group;
  return job;
}

JobRun run(JobOptions job, const std::string& strategy, Links links = Links::shm) {
  job.strategy = strategy;
  return run_job(job, links);
}

JobRun reference(JobOptions job, bool at_owner = false) {
  job.strategy = "single";
  job.virtual_workers = job.workers;
  job.workers = 1;
  job.shard_group.clear();
  if (at_owner) job.accumulate_at = "owner";
  return run_job(job);
}

/// Bytes, memory, and that all workers have the same.
void check_predicted(const JobRun& made) {
  for (const test::WorkerRun& worker : made.workers) {
    CHECK((worker.model == made.workers[0].model));
    CHECK(worker.sent == made.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == made.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

std::vector<float> values_of(const std::string& model) {
  const test::TemporaryFolder folder;
  const worker::TensorFile file(test::write_file(folder.file("model.safetensors"), model));
  std::vector<float> all;
  for (const worker::TensorEntry& tensor : file.entries()) {
    std::vector<float> values(tensor.elements);
    file.read(tensor, 0, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// The distance of two vectors, relative to the norm of the second.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

constexpr const char* kStages[] = {"zero1", "zero2", "zero3"};

}  // namespace

TEST_CASE("groups of one and one group are bitwise identical to single, others differ by rounding alone") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto [workers, group] = GENERATE(values<std::pair<std::size_t, const char*>>(
      {{1, "1"}, {2, "1"}, {2, "2"}, {4, "1"}, {4, "2"}, {4, "4"}, {6, "2"}, {6, "3"}}));
  JobOptions job = small_job(model, workers, group);
  SECTION("plain") {}
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("LAMB, clipped") {
    job.optimizer = "lamb";
    job.clip_norm = 0.05;
  }
  SECTION("small buckets, two units ahead, evaluated now and then") {
    job.bucket_bytes = 1024;
    job.prefetch = 2;
    job.eval_every = 2;
  }
  SECTION("no overlap, uneven data, parameters stay") {
    job.overlap = false;
    job.pad = "none";
    job.reshard_after_forward = false;
  }
  const JobRun expected = reference(job);
  const bool exact = job.shard_owners() == workers || job.shard_owners() == 1;
  for (const char* strategy : kStages) {
    CAPTURE(model, workers, group, strategy);
    const JobRun made = run(job, strategy);
    check_predicted(made);
    CHECK(made.predicted.same_bits == exact);
    if (exact)
      CHECK((made.workers[0].model == expected.workers[0].model));
    else  // the last bits, over nine steps
      CHECK(distance(values_of(made.workers[0].model), values_of(expected.workers[0].model)) < 1e-3);
    CHECK((run(job, strategy).workers[0].model == made.workers[0].model));
  }
}

TEST_CASE("at equal parameters gradients differ by at most 1e-6 of their norm") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto links = GENERATE(values({Links::shm, Links::in_process}));
  const auto [workers, group] =
      GENERATE(values<std::pair<std::size_t, const char*>>({{4, "1"}, {4, "2"}, {6, "2"}, {6, "3"}}));
  JobOptions job = small_job(model, workers, group);
  job.optimizer = "sgd";
  job.weight_decay.reset();
  job.steps = 1;
  job.lr = 1e6;  // next to the update the parameters vanish
  const std::vector<float> expected = values_of(reference(job).workers[0].model);
  for (const char* strategy : kStages) {
    CAPTURE(model, int(links), workers, group, strategy);
    CHECK(distance(values_of(run(job, strategy, links).workers[0].model), expected) <= 1e-6);
  }
}

TEST_CASE("a group's bytes, and the replicas' of what each owns") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto n = GENERATE(values<std::size_t>({1, 2, 4}));
  const auto micros = GENERATE(values<std::size_t>({1, 3}));
  JobOptions job = small_job(model, 4, std::to_string(n));
  job.global_batch = 12 * micros;
  job.accumulate = micros;
  const std::uint64_t replicas = 4 / n;
  const auto check_bytes = [&](const char* strategy, std::uint64_t gradients, std::uint64_t parameters) {
    CAPTURE(model, n, micros, strategy);
    const JobRun made = run(job, strategy);
    const std::uint64_t m = made.parameters * sizeof(float);
    const std::uint64_t inside = (n - 1) * (gradients + parameters) * m / n;
    const std::uint64_t between = 2 * (replicas - 1) * (m / n) / replicas;
    for (const test::WorkerRun& worker : made.workers) {
      CHECK(worker.sent == made.steps * (inside + between));
      CHECK(worker.received == worker.sent);
    }
    check_predicted(made);
  };
  check_bytes("zero1", 1, 1);
  check_bytes("zero2", micros, 1);
  check_bytes("zero3", micros, 2 * micros);
}

TEST_CASE("memory is cut among a group") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto n = GENERATE(values<std::size_t>({1, 2, 4}));
  JobOptions job = small_job(model, 4, std::to_string(n));
  const auto check_memory = [&](const char* strategy, std::size_t p, std::size_t g) {
    CAPTURE(model, n, strategy);
    const JobRun made = run(job, strategy);
    const std::uint64_t bytes = made.parameters * sizeof(float);
    for (const test::WorkerRun& worker : made.workers) {
      CHECK(worker.peaks.at(Category::parameters) == bytes / p);
      CHECK(worker.peaks.at(Category::gradients) == bytes / g);
      CHECK(worker.peaks.at(Category::optimizer) == 2 * bytes / n);
    }
    check_predicted(made);
  };
  check_memory("zero1", 1, 1);
  check_memory("zero2", 1, n);
  check_memory("zero3", n, n);
}

TEST_CASE("micro-batches are added up by owners, and by replicas after the last") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto group = GENERATE(values({"1", "2", "4"}));
  JobOptions job = small_job(model, 4, group);
  job.global_batch = 24;
  job.accumulate = 3;
  job.clip_norm = 0.05;
  for (const std::string strategy : kStages) {
    CAPTURE(model, group, strategy);
    const bool at_owner = strategy != "zero1";
    const JobRun made = run(job, strategy);
    check_predicted(made);
    const JobRun expected = reference(job, at_owner);
    const bool exact = std::string(group) == "4" || (std::string(group) == "1" && !at_owner);
    CHECK(made.predicted.same_bits == exact);
    if (exact) CHECK((made.workers[0].model == expected.workers[0].model));
    CHECK(distance(values_of(made.workers[0].model), values_of(expected.workers[0].model)) < 1e-3);
  }
}

TEST_CASE("in 16 bit all groups still have the same, and skip the same steps") {
  const auto precision = GENERATE(values({"bf16", "f16"}));
  const auto group = GENERATE(values({"1", "2", "4"}));
  JobOptions job = small_job(kGpt, 4, group);
  job.precision = precision;
  job.loss_scale = std::string(precision) == "f16" ? "dynamic" : "auto";  // from 65536: the first steps are skipped
  job.steps = 30;
  for (const char* strategy : kStages) {
    CAPTURE(precision, group, strategy);
    const JobRun made = run(job, strategy);
    check_predicted(made);
    const JobRun expected = reference(job);
    if (made.predicted.same_bits) CHECK((made.workers[0].model == expected.workers[0].model));
    double loss = 0;
    for (const test::WorkerRun& worker : made.workers) loss += worker.evaluations.back().loss_sum;
    CHECK(loss == Approx(expected.workers[0].evaluations.back().loss_sum).epsilon(0.005));
  }
}

TEST_CASE("over messages: the bytes of both plans") {
  const auto [workers, group] =
      GENERATE(values<std::pair<std::size_t, const char*>>({{4, "1"}, {4, "2"}, {6, "2"}, {6, "3"}}));
  const auto algorithm = GENERATE(values({"auto", "ring", "exchange"}));
  JobOptions job = small_job(kGpt, workers, group);
  job.algorithm = algorithm;
  job.clip_norm = 0.05;
  for (const char* strategy : kStages) {
    CAPTURE(workers, group, algorithm, strategy);
    const JobRun made = run(job, strategy, Links::in_process);
    check_predicted(made);
    if (made.predicted.same_bits) CHECK((made.workers[0].model == reference(job).workers[0].model));
  }
}

TEST_CASE("the workers of a host are a group, whatever their number") {
  JobOptions job = small_job(kMlp, 4, "host");
  job.strategy = "zero3";
  const auto on = [&](std::vector<std::size_t> firsts) { return run_job(job, Links::shm, nullptr, std::move(firsts)); };
  const auto numbered = [&](const char* group) {
    JobOptions same = job;
    same.shard_group = group;
    return run(same, "zero3");
  };
  CHECK((on({0, 2}).workers[0].model == numbered("2").workers[0].model));
  CHECK(on({0, 2}).workers[0].sent == numbered("2").workers[0].sent);
  CHECK(on({0}).workers[0].sent == numbered("4").workers[0].sent);
  CHECK(on({0, 1, 2, 3}).workers[0].sent == numbered("1").workers[0].sent);
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { on({0, 1}); }), Contains("--shard-group host") && Contains("3"));
}

TEST_CASE("what is no group is refused") {
  const auto refused = [&](const char* group) {
    return test::error_of(ErrorKind::usage, [&] { run(small_job(kMlp, 4, group), "zero3"); });
  };
  CHECK_THAT(refused("3"), Contains("--shard-group 3") && Contains("4 workers"));
  for (const char* group : {"0", "two", "2x", "-1", "8"}) CHECK_THAT(refused(group), Contains("--shard-group"));
}
