// A run with tables that continues from a checkpoint ends in the bits of one that was never disturbed, whoever saved
// it.
#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/tests/support/checkpoints.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;

namespace {

struct Way {
  std::string strategy;
  std::size_t servers = 0;
  std::string placement = "standalone";
};

JobOptions job_of(const Way& way, const std::string& rule) {
  JobOptions job;
  job.model = "dlrm:dense=4,features=5,dim=4,bottom=8-4,top=8-1";
  job.data = "criteo-like:samples=40";
  job.global_batch = 6;
  job.steps = 9;
  job.seed = 5;
  job.lr = 0.05;
  job.table_optimizer = rule;
  job.table_lr = 0.1;
  job.strategy = way.strategy;
  job.workers = way.strategy == "single" ? 1 : 2;
  job.virtual_workers = way.strategy == "single" ? 2 : 1;
  job.servers = way.servers;
  job.placement = way.strategy.ends_with("colocated") ? "colocated" : way.placement;
  return job;
}

std::string save(JobOptions job, const test::TemporaryFolder& folder) {
  job.checkpoint_every = 4;
  job.checkpoint_dir = folder.path();
  test::run_job(job, Links::shm);
  return folder.file("step-00000004");
}

void check_predicted(const JobRun& run, std::uint64_t steps) {
  for (const test::WorkerRun& worker : run.workers) {
    CHECK(worker.sent == *worker.predicted.worker_sends * steps + worker.predicted.run_sends);
    CHECK(worker.received == *worker.predicted.worker_receives * steps + worker.predicted.run_receives);
    for (const auto& [category, peak] : worker.peaks) {
      CAPTURE(to_string(category));
      CHECK(peak == worker.predicted.worker_memory.at(category));
    }
  }
  for (std::size_t server = 0; server < run.server_peaks.size(); ++server)
    for (const auto& [category, predicted] : run.predicted.each_server_memory.at(server)) {
      CAPTURE(server, to_string(category));
      CHECK(run.server_peaks[server].at(category) == predicted);
    }
}

}  // namespace

TEST_CASE("rows that any number of servers saved, any other number reads, to the same bits") {
  const auto rule = GENERATE(values<std::string>({"sgd", "rowwise-adagrad", "adam"}));
  const std::vector<Way> ways{{"single"},
                              {"ps", 1},
                              {"ps", 2},
                              {"ps", 3},
                              {"ps", 5},
                              {"ps-colocated", 2},
                              {"hybrid", 2},
                              {"hybrid-colocated", 2},
                              {"zero1", 2, "colocated"},
                              {"zero2", 3}};
  const JobRun undisturbed = test::run_job(job_of({"single"}, rule), Links::shm);
  for (const Way& from : {Way{"single"}, Way{"ps", 3}, Way{"ps-colocated", 2}, Way{"hybrid", 2},
                          Way{"ddp", 2, "colocated"}, Way{"zero1", 3}, Way{"zero2", 2, "colocated"}}) {
    const test::TemporaryFolder folder;
    const std::string checkpoint = save(job_of(from, rule), folder);
    optim::Checkpoint(checkpoint).verify();
    for (const Way& to : ways) {
      CAPTURE(rule, from.strategy, from.servers, to.strategy, to.servers, to.placement);
      JobOptions job = job_of(to, rule);
      job.resume = checkpoint;
      const JobRun resumed = test::run_job(job, Links::shm);
      CHECK((resumed.workers[0].model == undisturbed.workers[0].model));
      check_predicted(resumed, 5);
    }
  }
}

TEST_CASE("rows leave after a checkpoint as they would have without it") {
  const auto limit = GENERATE(values<std::string>({"4096", "4096,by=lfu", ""}));
  const auto job_with = [&](const Way& way) {
    JobOptions job = job_of(way, "adagrad");
    job.data = "criteo-like:samples=4000";
    job.global_batch = 500;
    job.table_rows = limit;
    job.table_ttl = std::string(limit.empty() ? "2" : "");
    job.table_sweep = 3;
    return job;
  };
  const JobRun undisturbed = test::run_job(job_with({"single"}), Links::shm);
  JobOptions without = job_with({"single"});
  without.table_rows = without.table_ttl = std::string();
  without.table_sweep = JobOptions().table_sweep;
  CHECK(undisturbed.workers[0].model.size() < test::run_job(without, Links::shm).workers[0].model.size());
  for (const Way& from : {Way{"single"}, Way{"ps", 3}}) {
    const test::TemporaryFolder folder;
    const std::string checkpoint = save(job_with(from), folder);
    for (const Way& to : {Way{"single"}, Way{"ps", 2}, Way{"zero1", 3}}) {
      CAPTURE(limit, from.strategy, to.strategy);
      JobOptions job = job_with(to);
      job.resume = checkpoint;
      const JobRun resumed = test::run_job(job, Links::shm);
      CHECK((resumed.workers[0].model == undisturbed.workers[0].model));
      check_predicted(resumed, 5);
    }
  }
}

TEST_CASE("a checkpoint of other tables is refused, and a damaged one") {
  const test::TemporaryFolder folder;
  const std::string checkpoint = save(job_of({"ps", 3}, "adagrad"), folder);
  const auto refusal = [&](const std::function<void(JobOptions&)>& change) {
    JobOptions job = job_of({"ps", 2}, "adagrad");
    job.resume = checkpoint;
    change(job);
    return test::error_of(ErrorKind::data, [&] { test::run_job(job, Links::shm); });
  };
  CHECK_THAT(refusal([](JobOptions& job) { job.table_optimizer = "adam"; }),
             Contains(checkpoint) && Contains("table optimizer adagrad, this run's is adam"));
  CHECK_THAT(refusal([](JobOptions& job) { job.table_type = "bf16"; }), Contains("table type f32, this run's is bf16"));
  CHECK_THAT(
      refusal([](JobOptions& job) { job.table_ttl = std::string("4"); }),
      Contains("rows that leave by no --table-ttl or --table-rows, this run's is --table-ttl 4 --table-sweep 100"));
  CHECK_THAT(refusal([](JobOptions& job) { job.model = "dlrm:dense=4,features=5,dim=8,bottom=8-8,top=8-1"; }),
             Contains("model dlrm"));
  const optim::Checkpoint saved(checkpoint);
  for (const optim::SavedTensor& tensor : saved.manifest().tensors) {
    if (tensor.width == 0) continue;
    CHECK(tensor.name == "rows");
    CHECK(tensor.rows > 0);
    optim::SavedTensor other = tensor;
    CHECK(saved.has(other));
    other.width = 8;
    CHECK_FALSE(saved.has(other));
    other = tensor;
    other.name = "ads";
    CHECK_FALSE(saved.has(other));
  }
  const std::string shard = checkpoint + "/server-1.shard";
  for (const std::size_t offset : {std::size_t{0}, test::read_file(shard).size() / 4}) {
    std::string bytes = test::read_file(shard);
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    test::write_file(shard, bytes);
    CHECK_THAT(test::error_of(ErrorKind::data, [&] { optim::Checkpoint(checkpoint).verify(); }),
               Contains(shard) && Contains("damaged"));
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    test::write_file(shard, bytes);
  }
}
