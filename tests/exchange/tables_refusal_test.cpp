// Options that tables do not have are refused by name.
#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/exchange/table_jobs.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("options that tables do not have are refused by name") {
  const auto refused = [](auto&& change) {
    JobOptions job = table_job();
    job.strategy = "ps";
    change(job);
    return test::error_of(ErrorKind::usage, [&] { run_job(job); });
  };
  const auto line = [](const std::string& flag) { return Contains("has tables, and " + flag + " is refused: "); };
  CHECK_THAT(refused([](JobOptions& job) {
               job.strategy = "zero3";
               job.workers = 2;
             }),
             line("--strategy zero3"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.consistency = "ssp:2";
               job.table_consistency = "bsp";
             }),
             line("--table-consistency bsp"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.strategy = "hybrid";
               job.consistency = "asp";
             }),
             line("--consistency asp"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.strategy = "zero2";
               job.accumulate = 2;
             }),
             line("--accumulate 2 with --strategy zero2"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_consistency = "asp";
               job.remedy = "scale-lr";
             }),
             line("--remedy scale-lr"));
  CHECK_THAT(refused([](JobOptions& job) { job.compress = "int8"; }), line("--compress int8"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_consistency = "asp";
               job.max_restarts = 1;
             }),
             line("--max-restarts 1 with --table-consistency asp"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_consistency = "ssp:1";
               job.workers = 2;
               job.min_workers = 1;
             }),
             line("--elastic 1:2 with --table-consistency ssp:1"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.checkpoint_every = 1;
               job.table_admit = "2";
             }),
             line("--checkpoint-every 1 with --table-admit 2"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.resume = "x";
               job.table_consistency = "asp";
             }),
             line("--resume x with --table-consistency asp"));
  CHECK_THAT(refused([](JobOptions& job) { job.init = "x"; }), line("--init"));
  CHECK_THAT(refused([](JobOptions& job) { job.optimizer_on = "worker"; }), line("--optimizer-on worker"));
  CHECK_THAT(refused([](JobOptions& job) { job.precision = "f16"; }), line("--precision f16"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_init = "uniform:x"; }),
             Contains("--table-init: expected uniform:A"));
  for (const char* wrong : {"constant:inf", "uniform:nan", "uniform:-1", "normal:-0.1", "uniform:"})
    CHECK_THAT(refused([&](JobOptions& job) { job.table_init = wrong; }),
               Contains(":A with a finite number A") && Contains(fmt::format("got '{}'", wrong)));
  CHECK_THAT(refused([](JobOptions& job) { job.table = "words:lr=0.1"; }),
             Contains("--table words: --model dlrm:dense=4,features=5,dim=4,bottom=8-4,top=8-1 has the tables rows"));
  CHECK_THAT(refused([](JobOptions& job) { job.table = "rows:optimizer=lion"; }),
             Contains("--table rows: --table-optimizer: unknown name 'lion'"));
  CHECK_THAT(refused([](JobOptions& job) { job.table = "rows:rows=10"; }),
             Contains("--table rows: --table-rows 10: expected at least 4096"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_rows = "10";
               job.table = "rows:lr=0.1";
             }),
             !Contains("--table rows: ") && Contains("--table-rows 10: expected at least 4096"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table = "rows:admit=2";
               job.checkpoint_every = 1;
             }),
             line("--checkpoint-every 1 with --table rows:admit=2"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_type = "bf16";
               job.table_compress = "bf16";
             }),
             Contains("the gradient of a row of table 'rows' takes 8 bytes in this code, and 8 without"));
  for (const auto& [consistency, flag] :
       {std::pair("bsp", "--strategy ps"), {"asp", "--consistency asp"}, {"ssp:0", "--consistency ssp:0"}})
    CHECK_THAT(refused([&, value = consistency](JobOptions& job) {
                 job.consistency = value;
                 job.table_cache = 1024;
               }),
               line(fmt::format("--table-cache 1024 with {}", flag)));
  CHECK_THAT(refused([](JobOptions& job) {
               job.consistency = "ssp:2";
               job.table_cache = 1024;
               job.table_lookahead = 1;
             }),
             line("--table-cache 1024 with --table-lookahead 1"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.consistency = "ssp:2";
               job.table_cache = 20;
             }),
             Contains("--table-cache 20: a row of table 'rows' and its key take 24 bytes"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_sweep = 5; }), line("--table-sweep 5"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_lookahead = 2; }), line("--table-lookahead 2"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_ttl = "5";
               job.table_consistency = "asp";
             }),
             line("--table-consistency asp"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_ttl = "0"; }),
             Contains("--table-ttl: expected a whole number > 0"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_ttl = "5,stay=2"; }), Contains("expected STEPS or STEPS,keep=N"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_admit = "2,none"; }), Contains("expected K or K,zero"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_rows = "5000,by=age"; }), Contains("expected R or R,by=lru|lfu"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_rows = "100"; }),
             Contains("--table-rows 100: expected at least 4096"));
  CHECK_THAT(refused([](JobOptions& job) {
               job.table_rows = "5000";
               job.table_ttl = "5,keep=6000";
             }),
             Contains("keeps more rows than --table-rows 5000"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_admit = "4294967296"; }), Contains("up to 2^32 - 1"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_init = "zeros"; }), Contains("--table-init: expected uniform:A"));
  CHECK_THAT(refused([](JobOptions& job) { job.table_optimizer = "lion"; }),
             Contains("--table-optimizer: unknown name 'lion'; known: adagrad"));
  CHECK_THAT(test::error_of(ErrorKind::data,
                            [] {
                              JobOptions job = table_job();
                              job.data = "synthetic";
                              run_job(job);
                            }),
             Contains("its samples have no keys, the model has tables; it reads criteo-like or criteo:FILE"));
  JobOptions without = test::small_job("mlp:16-16-4", 2);
  without.strategy = "hybrid";
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(without); }),
             Contains("has no table for its servers; use ddp"));
  without.strategy = "ps";
  without.table = "rows:lr=1";
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(without); }),
             Contains("--table rows:lr=1: --model mlp:16-16-4 has no table"));
  without.table = "";
  without.table_lr = 0.1;
  CHECK_THAT(test::error_of(ErrorKind::usage, [&] { run_job(without); }),
             Contains("--table-lr 0.1: --model mlp:16-16-4 has no table"));
}
