// The rules of rows, the types and codes that they travel in, and when they come and leave: as with virtual workers.
#include <catch2/catch.hpp>

#include <psring/tests/exchange/table_jobs.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::test;

TEST_CASE("every rule, micro-batches, and rows that travel in bf16") {
  const std::string rule = GENERATE("adagrad", "rowwise-adagrad", "adam", "ftrl:l1=0.001");
  JobOptions job = table_job();
  job.table_optimizer = rule;
  job.table_lr = 0.02;
  job.table_type = rule == "adam" || rule == "adagrad" ? "bf16" : "f32";
  job.accumulate = rule == "ftrl:l1=0.001" ? 1 : 2;
  job.schedule = "cosine:warmup=2";
  CAPTURE(rule);
  const JobRun reference = virtual_workers(job, 3);
  check_run(at_servers(job, 3, 2, Links::shm), reference, Links::shm);
}

TEST_CASE("each table has its own rule, and its own times when rows come and leave") {
  const test::TemporaryFolder folder;
  std::string text;
  for (std::size_t i = 0; i < 400; ++i) text += fmt::format("word {} stands beside {} in line {}\n", i % 7, i % 31, i);
  test::write_file(folder.file("text"), text);
  JobOptions job = table_job();
  job.model = "skip-gram:dim=8,negatives=3";
  job.data = "skip-gram:" + folder.file("text") + ",window=2";
  job.table_optimizer = "sgd";
  job.table = GENERATE("words:optimizer=adagrad:eps=1e-8,lr=0.1 contexts:type=bf16,init=normal:0.1",
                       "contexts:compress=int8,optimizer=adam,lr=0.01", "words:admit=3,zero contexts:ttl=2,keep=9",
                       "words:rows=4096,by=lfu,compress=bf16");
  job.table_sweep = job.table.find("ttl") + job.table.find("rows") == 2 * std::string::npos ? 100 : 2;
  CAPTURE(job.table);
  const JobRun reference = virtual_workers(job, 2);
  JobOptions plain = job;
  plain.table = "";
  plain.table_sweep = JobOptions().table_sweep;
  CHECK(virtual_workers(plain, 2).workers[0].model != reference.workers[0].model);
  check_run(at_servers(job, 2, 3, Links::shm), reference, Links::shm);
  check_run(at_servers(job, 2, 1, Links::shm, "hybrid"), reference, Links::shm);
  job.transport = "tcp";
  check_run(at_servers(job, 2, 2, Links::tcp), reference, Links::tcp);
}

TEST_CASE("gradients of rows that are coded take fewer bytes, and have the bits of single with the same code") {
  const auto [compress, type, rule] = GENERATE(table<std::string, std::string, std::string>(
      {{"bf16", "f32", "adagrad"}, {"int8", "f32", "adam"}, {"int8", "bf16", "rowwise-adagrad"}}));
  CAPTURE(compress, type, rule);
  JobOptions job = table_job();
  job.model = "dlrm:dense=4,features=5,dim=12,bottom=8-12,top=8-1";
  job.table_optimizer = rule;
  job.table_type = type;
  job.table_lr = 0.02;
  job.accumulate = 2;
  const JobRun plain = at_servers(job, 3, 2, Links::shm, "hybrid");
  job.table_compress = compress;
  const JobRun reference = virtual_workers(job, 3);
  CHECK(reference.workers[0].model != virtual_workers(
                                          [&] {
                                            JobOptions none = job;
                                            none.table_compress = "none";
                                            return none;
                                          }(),
                                          3)
                                          .workers[0]
                                          .model);
  check_run(at_servers(job, 3, 2, Links::shm), reference, Links::shm);
  const JobRun run = at_servers(job, 3, 2, Links::shm, "hybrid");
  check_run(run, reference, Links::shm);
  CHECK(run.servers_received < plain.servers_received);
  CHECK(run.servers_sent == plain.servers_sent);
  job.transport = "tcp";
  job.table_lookahead = 1;
  check_run(at_servers(job, 3, 2, Links::tcp), reference, Links::tcp);
  job.table_consistency = "asp";
  check_predicted(at_servers(job, 3, 2, Links::tcp, "hybrid"), Links::tcp);
}

TEST_CASE("the same keys have rows with any number of servers, and the memory between sweeps is predicted") {
  const auto [admit, ttl, rows, sweep] =
      GENERATE(table<std::string, std::string, std::string, std::uint64_t>({{"", "3", "", 2},
                                                                            {"", "2,keep=3000", "", 3},
                                                                            {"", "", "4096", 4},
                                                                            {"", "4", "5000,by=lru", 1},
                                                                            {"", "", "4096,by=lfu", 2},
                                                                            {"3", "", "", 100},
                                                                            {"2,zero", "3", "4096,by=lfu", 2},
                                                                            {"2", "2", "", 1}}));
  CAPTURE(admit, ttl, rows, sweep);
  JobOptions job = table_job();
  job.data = "criteo-like:samples=400";
  job.global_batch = 30;
  job.table_optimizer = "adagrad";
  const std::size_t all = virtual_workers(job, 3).workers[0].model.size();
  job.table_admit = admit;
  job.table_ttl = ttl;
  job.table_rows = rows;
  job.table_sweep = sweep;
  const JobRun reference = virtual_workers(job, 3);
  CHECK(reference.workers[0].model.size() < all);
  for (const auto& [category, peak] : reference.workers[0].peaks) {
    CAPTURE(to_string(category));
    CHECK(peak == reference.workers[0].predicted.worker_memory.at(category));
  }
  for (const std::size_t servers : {1, 2, 3}) check_run(at_servers(job, 3, servers, Links::shm), reference, Links::shm);
  check_run(at_servers(job, 3, 2, Links::shm, "hybrid"), reference, Links::shm);
  job.transport = "tcp";
  check_run(at_servers(job, 3, 2, Links::tcp), reference, Links::tcp);
}
