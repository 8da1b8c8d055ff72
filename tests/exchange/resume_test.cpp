// A run that continues from a checkpoint ends in the bits of one that was never disturbed, whoever saved it.
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/exchange/whole_units.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;

namespace {

constexpr const char* kMlp = "mlp:20-33-17-5";
constexpr const char* kBatchNorm = "bn-mlp:20-33-17-5";
constexpr const char* kGpt = "gpt:layers=2,dim=16,heads=2,context=8,vocab=31";

/// A way of training: how it is done, and by how many.
struct Way {
  std::string strategy;
  std::size_t workers = 2;
  std::size_t servers = 0;
  std::string optimizer_on = "server";
  std::string units = "layer";
  std::string shard_group = "";
};
std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.strategy << " " << way.workers << "+" << way.servers << " " << way.optimizer_on << " " << way.units
             << " " << way.shard_group;
}

JobOptions small_job(const char* model) {
  JobOptions job = test::small_job(model, 11);  // of 6 an epoch
  job.weight_decay = 0.1;
  job.schedule = "cosine:warmup=3";
  return job;
}

JobOptions by(JobOptions job, const Way& way) {
  job.strategy = way.strategy;
  job.workers = way.strategy == "single" ? 1 : way.workers;
  job.virtual_workers = way.strategy == "single" ? way.workers : 1;
  job.servers = way.servers;
  job.optimizer_on = way.optimizer_on;
  job.units = way.units;
  job.shard_group = way.shard_group;
  return job;
}

JobRun run(const JobOptions& job) { return test::run_job(job, Links::shm); }

std::string checkpoint_of(const test::TemporaryFolder& folder, std::uint64_t step) {
  return folder.file(fmt::format("step-{:08}", step));
}

/// Saves along `from`'s way after 4 and after 7 steps, and at the end.
JobRun save(const JobOptions& job, const Way& from, const test::TemporaryFolder& folder) {
  JobOptions saving = by(job, from);
  saving.checkpoint_every = 4;
  saving.checkpoint_dir = folder.path();
  return run(saving);
}

void check_resumed(const JobOptions& job, const Way& to, const std::string& checkpoint, std::uint64_t step) {
  JobOptions resuming = by(job, to);
  const JobRun undisturbed = run(resuming);
  resuming.resume = checkpoint;
  const JobRun resumed = run(resuming);
  CHECK((resumed.workers[0].model == undisturbed.workers[0].model));
  for (std::size_t rank = 0; rank < resumed.workers.size(); ++rank) {
    const test::WorkerRun& worker = resumed.workers[rank];
    REQUIRE(worker.steps.size() == *job.steps - step);
    for (std::size_t i = 0; i < worker.steps.size(); ++i) {
      const StepReport& expected = undisturbed.workers[rank].steps[step + i];
      CHECK(worker.steps[i].step == step + i);
      CHECK(worker.steps[i].epoch == expected.epoch);
      CHECK(worker.steps[i].loss == expected.loss);
    }
    if (rank == 0) CHECK(worker.evaluations.back().loss_sum == undisturbed.workers[0].evaluations.back().loss_sum);
    CHECK(worker.sent == worker.steps.size() * worker.predicted.worker_sends.value());
    CHECK(worker.received == worker.steps.size() * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

}  // namespace

TEST_CASE("saved by one way, continued by another") {
  const auto model = GENERATE(values({kMlp, kGpt}));
  const auto optimizer = GENERATE(values({"adamw", "momentum"}));
  const auto ways = GENERATE(values<std::pair<Way, Way>>({
      {{"ps", 2, 3}, {"zero3", 2}},
      {{"zero3", 2}, {"ps", 2, 3}},
      {{"single", 2}, {"ddp", 2}},
      {{"ddp", 2}, {"zero1", 2}},
      {{"zero1", 2}, {"zero2", 2}},
      {{"zero2", 2}, {"ps-zero2", 2, 2}},
      {{"ps-zero2", 2, 1}, {"ps-zero3", 2, 3}},
      {{"ps-zero3", 2, 3}, {"single", 2}},
      {{"ps", 2, 2, "worker"}, {"ps", 2, 1}},
      {{"ps", 2, 2}, {"ps", 2, 3, "worker"}},
      {{"zero3", 3}, {"ddp-naive", 2}},
      {{"ps-zero3", 4, 5, "server", "block"}, {"zero3", 3, 0}},
      {{"single", 1}, {"zero3", 4, 0, "server", "block"}},
      {{"zero3", 4, 0, "server", "layer", "2"}, {"ps", 2, 3}},
      {{"zero2", 4, 0, "server", "block", "2"}, {"zero3", 4, 0, "server", "layer", "2"}},
      {{"zero1", 4, 0, "server", "layer", "1"}, {"zero3", 4}},
      {{"ps", 4, 3}, {"zero3", 4, 0, "server", "layer", "1"}},
  }));
  JobOptions job = small_job(model);
  job.optimizer = optimizer;
  const test::TemporaryFolder folder;
  CAPTURE(model, optimizer, ways.first, ways.second);
  const JobRun saved = save(job, ways.first, folder);
  // To save changes nothing.
  CHECK((saved.workers[0].model == run(by(job, ways.first)).workers[0].model));
  // If another number of workers saved the checkpoint, the runs differ up to there: the resumed run is compared with an
  // undisturbed run only if the numbers are equal.
  if (ways.first.workers == ways.second.workers) {
    check_resumed(job, ways.second, checkpoint_of(folder, 4), 4);
    return;
  }
  JobOptions resuming = by(job, ways.second);
  resuming.resume = checkpoint_of(folder, 4);
  JobOptions the_same = by(job, {"single", ways.second.workers});
  the_same.resume = resuming.resume;
  CHECK((run(resuming).workers[0].model == run(the_same).workers[0].model));
}

TEST_CASE("what a checkpoint has besides: buffers, steps in the middle of an epoch, norms over all owners") {
  JobOptions job = small_job(kGpt);
  Way from{"ps", 2, 3};
  Way to{"zero3", 2};
  std::uint64_t step = 8;
  double skipped = 0;
  SECTION("batch norm's buffers") { job.model = kBatchNorm; }
  SECTION("batch norm's buffers, from workers that share them") {
    job.model = kBatchNorm;
    std::swap(from, to);
  }
  SECTION("clipped") { job.clip_norm = 0.05; }
  SECTION("clipped by servers") {
    job.clip_norm = 0.05;
    std::swap(from, to);
  }
  SECTION("LAMB") { job.optimizer = "lamb"; }
  SECTION("bf16, and what its last digits do not say") { job.precision = "bf16"; }
  SECTION("bf16, by servers") {
    job.precision = "bf16";
    std::swap(from, to);
  }
  SECTION("bf16 without a copy in f32") {
    job.precision = "bf16";
    job.master_copy = false;
  }
  SECTION("f16: its loss scale, and steps that were skipped") {
    job = small_job(kMlp);
    job.precision = "f16";
    job.global_batch = 2;  // large gradients: the seventh and eighth step are skipped
    job.lr = 0.1;
    job.weight_decay.reset();
    job.schedule = "constant";
    skipped = 2;
    from = GENERATE(values<Way>({{"ps", 2, 3}, {"ps-zero2", 2, 2}, {"ps-zero3", 2, 2}, {"ddp", 2}}));
    to = GENERATE(values<Way>({{"zero3", 2}, {"ps-zero3", 2, 2}, {"ps", 2, 1, "worker"}}));
    CAPTURE(from, to);
  }
  SECTION("no state at all") { job.optimizer = "sgd"; }
  SECTION("an epoch begins") {
    job.data = "synthetic:samples=96";
    job.global_batch = 24;
  }
  SECTION("uneven data") {
    job.pad = "none";
    job.data = "synthetic:samples=41";
  }
  SECTION("evaluated and saved at the same steps") { job.eval_every = 4; }
  const test::TemporaryFolder folder;
  save(job, from, folder);
  CHECK(optim::Checkpoint(checkpoint_of(folder, step)).manifest().scalars.at("skipped_steps") == skipped);
  check_resumed(job, to, checkpoint_of(folder, step), step);
}

TEST_CASE("a run that continues saves, too, and the end of a run is always saved") {
  JobOptions job = by(small_job(kMlp), {"ps", 2, 2});
  const test::TemporaryFolder folder;
  const std::string expected = run(job).workers[0].model;
  const optim::CheckpointFolder checkpoints(folder.path());
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.path();
  job.checkpoint_keep = 2;
  job.steps = 5;
  job.schedule = "constant";
  run(job);
  REQUIRE(checkpoints.complete().size() == 2);
  CHECK(checkpoints.complete().back().step == 5);
  job.resume = optim::find_checkpoint(folder.path()).string();
  job.steps = 11;
  const std::string resumed = run(job).workers[0].model;
  REQUIRE(checkpoints.complete().size() == 2);
  CHECK(checkpoints.complete()[0].step == 8);
  CHECK(checkpoints.complete()[1].step == 11);
  job = by(small_job(kMlp), {"ps", 2, 2});
  job.schedule = "constant";
  CHECK((resumed == run(job).workers[0].model));
}

TEST_CASE("another job does not continue it") {
  const JobOptions job = small_job(kMlp);
  const test::TemporaryFolder folder;
  save(job, {"ddp", 2}, folder);
  JobOptions other = by(job, {"zero1", 3});
  other.resume = checkpoint_of(folder, 8);
  const auto refusal = [&] { return test::error_of(ErrorKind::data, [&] { run(other); }); };
  std::string said;
  SECTION("model") {
    other.model = "mlp:20-33-18-5";
    said = "saved with model mlp:20-33-17-5, this run's is mlp:20-33-18-5";
  }
  SECTION("optimizer") {
    other.optimizer = "adam";
    said = "saved with optimizer adamw beta1=0.9";
  }
  SECTION("what it was made with") {
    other.beta1 = 0.8;
    said = "beta1=0.8";
  }
  SECTION("seed") {
    other.seed = 6;
    said = "saved with seed 5, this run's is 6";
  }
  SECTION("batch") {
    other.global_batch = 24;
    said = "global batch 12";
  }
  SECTION("data") {
    other.data = "synthetic:samples=71";
    said = "this run's is synthetic:samples=71; training samples ";
  }
  SECTION("two facts") {
    other.seed = 6;
    other.global_batch = 24;
    said = "saved with global batch 12, this run's is 24; seed 5, this run's is 6";
  }
  SECTION("shuffling") {
    other.shuffle = "none";
    said = "shuffle epoch";
  }
  SECTION("there is nothing left to do") {
    other.steps = 8;
    said = "at step 8 already";
  }
  CHECK_THAT(refusal(), Contains("--resume " + other.resume) && Contains(said));
}

TEST_CASE("a shard that is damaged after it was checked fails the job with its name, in whoever reads it") {
  const JobOptions job = small_job(kMlp);
  const auto to = GENERATE(values<Way>({{"ps", 2, 2}, {"zero3", 2}, {"single", 2}}));
  CAPTURE(to);
  const test::TemporaryFolder folder;
  save(job, {"ddp", 2}, folder);
  const std::string file = checkpoint_of(folder, 4) + "/worker-1.shard";
  std::string bytes = test::read_file(file);
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  test::write_file(file, bytes);
  JobOptions resuming = by(job, to);
  resuming.resume = checkpoint_of(folder, 4);
  CHECK_THAT(test::error_of(ErrorKind::data, [&] { run(resuming); }), Contains(file) && Contains("damaged"));
}

TEST_CASE("a strategy that does not say what it has is not asked to save") {
  struct Silent final : worker::Strategy {
    Silent(const worker::Plan& plan, const worker::World& world)
        : parameters(plan, world, worker::WholeUnits::Values::parameters),
          gradients(plan, world, worker::WholeUnits::Values::gradients) {}
    void finish_step(worker::Step) override {}
    worker::WholeUnits parameters;
    worker::WholeUnits gradients;
  };
  const test::TemporaryFolder folder;
  JobOptions job = by(small_job(kMlp), {"single", 1});
  job.strategy = "silent";
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.path();
  const auto add = [](worker::Registries& registries) {
    registries.strategies.add("silent", "", [](const Spec&) {
      return std::make_unique<worker::StrategyKind>(
          worker::StrategyKind{.one_worker = true, .make = [](const worker::Plan& plan, const worker::World& world) {
                                 return std::make_unique<Silent>(plan, world);
                               }});
    });
  };
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { test::run_job(job, Links::shm, add); }),
             Contains("--checkpoint-every 4") && Contains("--strategy silent"));
}

TEST_CASE("where nothing can be written the job fails with the file's name") {
  const auto from = GENERATE(values<Way>({{"ps", 2, 2}, {"zero3", 2}, {"single", 2}}));
  CAPTURE(from);
  const test::TemporaryFolder folder;
  JobOptions job = by(small_job(kMlp), from);
  job.checkpoint_every = 4;
  job.checkpoint_dir = test::write_file(folder.file("file"), "") + "/below";
  CHECK_THAT(test::error_of(ErrorKind::data, [&] { run(job); }), Contains(job.checkpoint_dir));
}
