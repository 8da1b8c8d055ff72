// Rows under ssp and asp, pulled ahead, and kept by workers: bytes and memory, and bits where they are defined.
#include <catch2/catch.hpp>

#include <psring/tests/exchange/table_jobs.h>

using namespace psring;
using namespace psring::test;

TEST_CASE("under ssp and asp each push of rows is an update, and bytes and memory are those of bsp") {
  const auto [strategy, consistency, rows, links] =
      GENERATE(table<std::string, std::string, std::string, Links>({{"ps", "asp", "", Links::shm},
                                                                    {"ps", "ssp:1", "", Links::tcp},
                                                                    {"ps", "ssp:2", "asp", Links::shm},
                                                                    {"ps", "bsp", "asp", Links::shm},
                                                                    {"ps-colocated", "asp", "", Links::shm},
                                                                    {"hybrid", "bsp", "asp", Links::shm},
                                                                    {"hybrid", "bsp", "ssp:0", Links::tcp},
                                                                    {"hybrid-colocated", "bsp", "asp", Links::shm}}));
  CAPTURE(strategy, consistency, rows);
  JobOptions job = table_job();
  job.consistency = consistency;
  job.table_consistency = rows;
  if (strategy.ends_with("colocated")) job.placement = "colocated";
  if (links == Links::tcp) job.transport = "tcp";
  job.eval_every = 4;
  const JobRun run = at_servers(job, 3, 2, links, strategy);
  check_predicted(run, links);
  for (const test::WorkerRun& worker : run.workers) CHECK(worker.model == run.workers[0].model);
  REQUIRE(run.workers[0].evaluations.size() == 3);
  CHECK(virtual_workers(table_job(), 3).workers[0].model.size() == run.workers[0].model.size());
}

TEST_CASE("one worker has the bits of single under asp as well") {
  JobOptions job = table_job();
  job.schedule = "cosine:warmup=2";
  const JobRun reference = virtual_workers(job, 1);
  job.consistency = "asp";
  check_run(at_servers(job, 1, 2, Links::shm), reference, Links::shm);
}

TEST_CASE("rows that are pulled ahead have the same bits, and their bytes and memory are predicted") {
  const auto [strategy, links, what] =
      GENERATE(table<std::string, Links, std::string>({{"ps", Links::shm, ""},
                                                       {"ps", Links::tcp, "sweeps"},
                                                       {"ps", Links::in_process, "accumulates"},
                                                       {"ps", Links::shm, "empty batches"},
                                                       {"ps-colocated", Links::shm, "accumulates"},
                                                       {"hybrid", Links::shm, "sweeps"},
                                                       {"hybrid", Links::tcp, "clips"},
                                                       {"hybrid-colocated", Links::shm, "admits"},
                                                       {"zero1", Links::shm, ""},
                                                       {"zero2", Links::tcp, ""}}));
  CAPTURE(strategy, what);
  JobOptions job = table_job();
  if (strategy.ends_with("colocated")) job.placement = "colocated";
  if (links == Links::tcp) job.transport = "tcp";
  job.table_optimizer = "adagrad";
  job.table_type = what == "clips" ? "bf16" : "f32";
  if (what == "accumulates") job.accumulate = 2;
  if (what == "clips") job.clip_norm = 0.1;
  if (what == "sweeps") {
    job.table_ttl = std::string("2");
    job.table_rows = std::string("4096,by=lfu");
    job.table_sweep = 2;
  }
  if (what == "admits") job.table_admit = std::string("2");
  if (what == "empty batches") {
    job.data = "criteo-like:samples=25";
    job.global_batch = 8;
    job.pad = "none";
  }
  job.eval_every = 2;
  for (const std::size_t workers : {1, 3}) {
    JobOptions ahead = job;
    const JobRun reference = virtual_workers(job, workers);
    ahead.table_lookahead = 1;
    const JobRun run = at_servers(ahead, workers, 2, links, strategy);
    check_run(run, reference, links);
    REQUIRE(run.workers[0].evaluations.size() == reference.workers[0].evaluations.size());
    for (std::size_t i = 0; i < run.workers[0].evaluations.size(); ++i)
      CHECK(run.workers[0].evaluations[i].own[0].value == reference.workers[0].evaluations[i].own[0].value);
    const JobRun plain = at_servers(job, workers, 2, links, strategy);
    if (links != Links::in_process) CHECK(run.workers[0].received > plain.workers[0].received);  // by the marks
  }
}

TEST_CASE("under ssp and asp rows are pulled several steps ahead") {
  const auto [strategy, consistency, lookahead, links] =
      GENERATE(table<std::string, std::string, std::size_t, Links>({{"ps", "asp", 1, Links::shm},
                                                                    {"ps", "ssp:1", 2, Links::tcp},
                                                                    {"hybrid", "asp", 3, Links::shm},
                                                                    {"hybrid-colocated", "ssp:0", 4, Links::shm},
                                                                    {"hybrid", "asp", 16, Links::tcp}}));
  CAPTURE(strategy, consistency, lookahead);
  JobOptions job = table_job();
  if (strategy == "ps") job.consistency = consistency;
  job.table_consistency = consistency;
  job.table_lookahead = lookahead;
  if (strategy.ends_with("colocated")) job.placement = "colocated";
  if (links == Links::tcp) job.transport = "tcp";
  job.eval_every = 4;
  const JobRun run = at_servers(job, 3, 2, links, strategy);
  check_predicted(run, links);
  for (const test::WorkerRun& worker : run.workers) CHECK(worker.model == run.workers[0].model);
}

TEST_CASE("rows of a worker's cache are not asked for, and the bytes are as predicted") {
  const auto [strategy, links, bound, bytes] = GENERATE(
      table<std::string, Links, std::string, std::size_t>({{"ps", Links::shm, "ssp:1", 1 << 20},
                                                           {"ps", Links::tcp, "ssp:3", 1 << 20},
                                                           {"ps", Links::in_process, "ssp:2", 9 * 24},
                                                           {"hybrid", Links::shm, "ssp:2", 24},
                                                           {"hybrid", Links::tcp, "ssp:2", 1 << 20},
                                                           {"hybrid-colocated", Links::shm, "ssp:2", 30 * 24}}));
  CAPTURE(strategy, bound, bytes);
  JobOptions job = table_job();
  job.data = "criteo-like:samples=12";  // keys come again soon
  if (strategy == "ps") job.consistency = bound;
  job.table_consistency = bound;
  job.table_optimizer = "adagrad";
  job.table_type = bound == "ssp:1" ? "bf16" : "f32";
  job.accumulate = bound == "ssp:1" || bytes == 9 * 24 ? 2 : 1;  // the rows are acquired twice
  if (strategy.ends_with("colocated")) job.placement = "colocated";
  if (links == Links::tcp) job.transport = "tcp";
  job.eval_every = 4;
  const JobRun plain = at_servers(job, 3, 2, links, strategy);
  job.table_cache = bytes;
  const JobRun run = at_servers(job, 3, 2, links, strategy);
  check_predicted(run, links);
  for (const test::WorkerRun& worker : run.workers) CHECK(worker.model == run.workers[0].model);
  if (bytes == 1 << 20) CHECK(run.servers_sent < plain.servers_sent);
  CHECK(run.servers_received > plain.servers_received);  // by the bits
}

TEST_CASE("one worker's cache gives the rows of up to K steps before") {
  JobOptions job = table_job();
  job.data = "criteo-like:samples=6";  // every step has the same keys
  job.shuffle = "none";
  job.steps = 2;
  job.lr = 1e-30;
  job.table_lr = 0.5;
  job.consistency = "ssp:1";
  const JobRun fresh = at_servers(job, 1, 1);
  job.table_cache = 1 << 20;
  const JobRun cached = at_servers(job, 1, 1);
  CHECK(fresh.workers[0].model != cached.workers[0].model);
  check_predicted(cached);
  job.steps = 1;
  CHECK(at_servers(job, 1, 1).workers[0].model == [&] {
    job.table_cache = 0;
    return at_servers(job, 1, 1).workers[0].model;
  }());
}
