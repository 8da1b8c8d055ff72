// The residuals of error feedback are part of a checkpoint: a resumed run ends with the bits of an undisturbed run.
#include <cmath>
#include <numeric>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/rounding.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/registries.h>
#include <psring/worker/state/checkpoints.h>
#include <psring/worker/state/error_feedback.h>
#include <psring/worker/training.h>

using namespace psring;
using test::JobRun;
using test::Links;

namespace {

/// A way of training, and the first workers of its hosts where these add gradients up.
struct Way {
  std::string strategy;
  std::size_t workers = 2;
  std::size_t servers = 0;
  std::string optimizer_on = "server";
  std::vector<std::size_t> hosts = {};
  std::string shard_group = "";
};
std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.strategy << " " << way.workers << "+" << way.servers << " " << way.optimizer_on << " "
             << way.hosts.size();
}

JobOptions small_job(const Way& way, const std::string& compress) {
  JobOptions job = test::small_job("mlp:20-33-17-5", 11);  // with padding between tensors
  job.strategy = way.strategy;
  job.workers = way.workers;
  job.servers = way.servers;
  job.optimizer_on = way.optimizer_on;
  job.shard_group = way.shard_group;
  job.local_reduce = !way.hosts.empty();
  job.compress = compress;
  job.optimizer = "momentum";
  job.lr = 0.05;
  job.clip_norm = 0.5;
  return job;
}

JobRun run(const JobOptions& job, const Way& way) { return test::run_job(job, Links::shm, nullptr, way.hosts); }

std::string save(JobOptions job, const Way& way, const test::TemporaryFolder& folder) {
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.path();
  return run(job, way).workers[0].model;
}

std::string checkpoint_of(const test::TemporaryFolder& folder, std::uint64_t step) {
  return folder.file(fmt::format("step-{:08}", step));
}

}  // namespace

TEST_CASE("a compressed run that continues ends in the same bits") {
  const auto compress = GENERATE(values({"bf16", "int8", "sign", "top-k:ratio=0.05", "random-k:ratio=0.05"}));
  const auto way = GENERATE(values<Way>({{"ps", 2, 3},
                                         {"ps", 3, 2, "worker"},
                                         {"ps", 3, 2, "server", {0, 2}},
                                         {"ps-zero2", 2, 2},
                                         {"ps-zero3", 3, 2},
                                         {"ddp", 3},
                                         {"zero1", 3},
                                         {"zero2", 2},
                                         {"zero3", 3},
                                         {"zero2", 4, 0, "server", {}, "2"}}));
  const bool feedback = GENERATE(true, false);
  CAPTURE(compress, way, feedback);
  JobOptions job = small_job(way, compress);
  job.error_feedback = feedback;
  if (way.strategy != "ps" && way.strategy != "ddp") job.accumulate = 2;  // at their owners, but for zero1
  const JobRun undisturbed = run(job, way);
  const test::TemporaryFolder folder;
  CHECK((save(job, way, folder) == undisturbed.workers[0].model));
  for (const std::uint64_t step : {4, 8}) {
    job.resume = checkpoint_of(folder, step);
    const JobRun resumed = run(job, way);
    CHECK((resumed.workers[0].model == undisturbed.workers[0].model));
    for (const test::WorkerRun& worker : resumed.workers) CHECK(worker.peaks == worker.predicted.worker_memory);
  }
}

TEST_CASE("a run with low-rank factors continues in the same bits, and with another rank or strategy") {
  const Way way = GENERATE(values<Way>({{"ddp", 3}, {"zero1", 3}}));
  const bool feedback = GENERATE(true, false);
  CAPTURE(way, feedback);
  JobOptions job = small_job(way, "power-sgd:rank=2");
  job.error_feedback = feedback;
  job.accumulate = 2;
  const JobRun undisturbed = run(job, way);
  const test::TemporaryFolder folder;
  CHECK((save(job, way, folder) == undisturbed.workers[0].model));
  for (const std::uint64_t step : {4, 8}) {
    job.resume = checkpoint_of(folder, step);
    for (const std::size_t bucket_bytes : {std::size_t{1}, JobOptions().bucket_bytes}) {
      job.bucket_bytes = bucket_bytes;
      CHECK((run(job, way).workers[0].model == undisturbed.workers[0].model));
    }
    JobOptions other = job;
    other.strategy = way.strategy == "ddp" ? "zero1" : "ddp";
    CHECK((run(other, way).workers[0].model == undisturbed.workers[0].model));
    other.compress = "power-sgd:rank=1";  // begins with new factors
    CHECK((run(other, way).workers[0].model != undisturbed.workers[0].model));
    other.compress = "none";
    run(other, way);
  }
}

TEST_CASE("how gradients are compressed may change with a checkpoint, and whether they are") {
  const Way way{"ddp", 2};
  const test::TemporaryFolder folder;
  save(small_job(way, "top-k:ratio=0.05"), way, folder);
  std::vector<std::string> models;
  for (const char* compress : {"top-k:ratio=0.05", "sign", "none"}) {
    JobOptions job = small_job(way, compress);
    job.resume = checkpoint_of(folder, 4);
    models.push_back(run(job, way).workers[0].model);
  }
  CHECK((models[0] != models[1] && models[1] != models[2] && models[0] != models[2]));
  const test::TemporaryFolder without;
  save(small_job(way, "none"), way, without);
  JobOptions job = small_job(way, "top-k:ratio=1");  // nothing is lost, and nothing was
  job.resume = checkpoint_of(without, 4);
  CHECK((run(job, way).workers[0].model == run(small_job(way, "none"), way).workers[0].model));
}

TEST_CASE("by whichever workers a run is continued, what was left to add to their mean is the same") {
  const auto from = GENERATE(values<Way>({{"ddp", 3}, {"ps", 3, 2, "server", {0, 2}}, {"ps", 3, 2, "server", {0}}}));
  struct Now {
    std::size_t workers;
    std::vector<std::size_t> keepers;
  };
  const auto now = GENERATE(
      values<Now>({{3, {0, 1, 2}}, {2, {0, 1}}, {4, {0, 1, 2, 3}}, {6, {0, 4}}, {1, {0}}, {3, {0, 2}}, {3, {0}}}));
  CAPTURE(from, now.workers, now.keepers);
  const test::TemporaryFolder folder;
  save(small_job(from, "top-k:ratio=0.05"), from, folder);
  JobOptions job = small_job({"ps", now.workers, 2}, "top-k:ratio=0.05");
  job.resume = checkpoint_of(folder, 8);
  worker::Registries registries;
  worker::register_builtins(registries);
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  const worker::TrainSetup setup(job, registries, optimizers);
  const optim::Checkpoint& saved = *setup.saved();
  const std::vector<std::size_t> kept = from.hosts.empty() ? std::vector<std::size_t>{0, 1, 2} : from.hosts;
  REQUIRE(saved.residuals() == kept);
  const bool same = now.workers == from.workers && now.keepers == kept;

  MemoryLedger ledger;
  const Layout& layout = setup.layout();
  for (const std::size_t unit : layout.trained()) {
    std::vector<float> values(layout.units[unit].elements);
    std::vector<double> left(values.size());
    std::vector<double> sizes(values.size());  // of the terms: they may cancel
    for (const std::size_t keeper : kept) {
      saved.read(layout.units[unit], {0, values.size()}, optim::residual_array(keeper), values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        left[i] += values[i] / 3.0;
        sizes[i] += std::abs(values[i]) / 3.0;
      }
    }
    REQUIRE(std::ranges::any_of(left, [](double value) { return value != 0; }));
    std::vector<double> taken(values.size());
    for (std::size_t rank = 0; rank < now.workers; ++rank) {
      worker::ErrorFeedback feedback(layout, ledger);
      worker::restore_residual(saved, setup, now.keepers, rank, feedback);
      const std::span<const float> residual = feedback.residual(unit).as<float>();
      const bool keeps = std::ranges::count(now.keepers, rank) > 0;
      CHECK(std::ranges::any_of(residual, [](float value) { return value != 0; }) == keeps);
      if (same && keeps) {
        saved.read(layout.units[unit], {0, values.size()}, optim::residual_array(rank), values);
        CHECK(std::ranges::equal(residual, values));
      }
      for (std::size_t i = 0; i < values.size(); ++i) taken[i] += residual[i] / static_cast<double>(now.workers);
    }
    // Each term is multiplied by a rounded share and added to the others.
    const double bound = test::f32_order_bound(kept.size() + 2);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(taken[i] - left[i]) <= bound * sizes[i]);
  }
}
