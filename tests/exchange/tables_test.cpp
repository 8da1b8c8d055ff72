// Tables at servers change where rows are, and nothing else: bits of the model and its rows, bytes, memory.
#include <cmath>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/model/test_metrics.h>

using namespace psring;
using Catch::Contains;
using test::JobRun;
using test::Links;
using test::run_job;

namespace {

/// 6 samples a step, so that 1, 2 and 3 workers divide it; an epoch ends in the middle of a batch.
JobOptions small_job() {
  JobOptions job;
  job.model = "dlrm:dense=4,features=5,dim=4,bottom=8-4,top=8-1";
  job.data = "criteo-like:samples=40";
  job.workers = 1;
  job.servers = 1;
  job.global_batch = 6;
  job.steps = 9;
  job.seed = 5;
  job.lr = 0.05;
  job.table_optimizer = "sgd";
  job.table_lr = 0.5;
  return job;
}

JobRun virtual_workers(JobOptions job, std::size_t workers) {
  job.strategy = "single";
  job.virtual_workers = workers;
  job.servers = 0;
  return run_job(job);
}

JobRun at_servers(JobOptions job, std::size_t workers, std::size_t servers, Links links = Links::in_process,
                  const std::string& strategy = "ps") {
  job.strategy = strategy;
  job.workers = workers;
  job.servers = servers;
  return run_job(job, links);
}

/// Bytes and memory of a run. Links within a process copy answers, which no process does: what servers keep for
/// them is not compared.
void check_predicted(const JobRun& run, Links links = Links::in_process) {
  CHECK(run.servers_received == *run.predicted.server_receives * run.steps + run.predicted.run_server_receives);
  CHECK(run.servers_sent == *run.predicted.server_sends * run.steps + run.predicted.run_server_sends);
  for (const test::WorkerRun& worker : run.workers) {
    CHECK(worker.sent == *worker.predicted.worker_sends * run.steps + worker.predicted.run_sends);
    CHECK(worker.received == *worker.predicted.worker_receives * run.steps + worker.predicted.run_receives);
    for (const auto& [category, peak] : worker.peaks) {
      CAPTURE(to_string(category));
      CHECK(peak == worker.predicted.worker_memory.at(category));
    }
  }
  for (std::size_t server = 0; server < run.server_peaks.size(); ++server)
    for (const auto& [category, predicted] : run.predicted.each_server_memory.at(server)) {
      if (links == Links::in_process && category == Category::communication) continue;
      CAPTURE(server, to_string(category));
      const auto peak = run.server_peaks[server].find(category);  // a server without rows books no index
      CHECK((peak == run.server_peaks[server].end() ? 0 : peak->second) == predicted);
    }
}

/// Bits, bytes and memory.
void check_run(const JobRun& run, const JobRun& reference, Links links = Links::in_process) {
  CHECK((run.workers[0].model == reference.workers[0].model));
  check_predicted(run, links);
}

}  // namespace

TEST_CASE("single books what it predicts, and learns") {
  JobOptions job = small_job();
  job.data = "criteo-like:samples=8000";
  job.global_batch = 64;
  job.steps = 500;
  job.lr = 0.1;
  job.table_optimizer = "adagrad";
  job.table_lr = 0.1;
  const JobRun run = virtual_workers(job, 1);
  const test::WorkerRun& worker = run.workers[0];
  for (const auto& [category, peak] : worker.peaks) {
    CAPTURE(to_string(category));
    CHECK(peak == worker.predicted.worker_memory.at(category));
  }
  CHECK(worker.peaks.at(Category::index) > 0);
  REQUIRE(worker.evaluations.size() == 1);
  const Evaluation& evaluation = worker.evaluations[0];
  CHECK(evaluation.rows == 800);
  REQUIRE(evaluation.own.size() == 1);
  CHECK(evaluation.own[0].name == "auc");
  const double auc = evaluation.own[0].value / static_cast<double>(evaluation.rows);
  const worker::CriteoLike clicks({.samples = 8000, .dense = 4, .features = 5, .seed = job.seed});
  std::vector<float> logits;
  std::vector<std::int32_t> classes;
  for (std::size_t sample = 8000; sample < 8800; ++sample) {
    logits.push_back(static_cast<float>(clicks.logit(sample)));
    classes.push_back(clicks.clicked(sample));
  }
  CHECK(auc > 0.6);
  CHECK(auc < worker::area_under_curve(logits, classes) + 0.002);  // the best that can be known
}

TEST_CASE("tables at servers give the bits of as many virtual workers") {
  const std::size_t workers = GENERATE(1, 2, 3);
  const JobRun reference = virtual_workers(small_job(), workers);
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(workers, servers);
    check_run(at_servers(small_job(), workers, servers), reference);
  }
}

TEST_CASE("over shared memory and TCP as well") {
  const Links links = GENERATE(Links::shm, Links::tcp, Links::tcp_encrypted);
  const JobRun reference = virtual_workers(small_job(), 2);
  JobOptions job = small_job();
  if (links != Links::shm) job.transport = "tcp";
  check_run(at_servers(job, 2, 3, links), reference, links);
}

TEST_CASE("with servers in workers' processes, what stays in a process is not sent") {
  const std::size_t workers = GENERATE(2, 3);
  const Links links = GENERATE(Links::shm, Links::tcp);
  const JobRun reference = virtual_workers(small_job(), workers);
  for (std::size_t servers = 1; servers <= workers; ++servers) {
    CAPTURE(workers, servers);
    JobOptions job = small_job();
    job.placement = "colocated";
    if (links == Links::tcp) job.transport = "tcp";
    check_run(at_servers(job, workers, servers, links, "ps-colocated"), reference, links);
  }
}

TEST_CASE("hybrid: dense gradients are averaged among workers, and rows are at servers") {
  const std::size_t workers = GENERATE(1, 2, 3);
  const JobRun reference = virtual_workers(small_job(), workers);
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(workers, servers);
    JobOptions job = small_job();
    job.accumulate = servers == 2 ? 2 : 1;
    check_run(at_servers(job, workers, servers, Links::shm, "hybrid"),
              job.accumulate == 1 ? reference : virtual_workers(job, workers), Links::shm);
    if (servers > workers) continue;
    job.placement = "colocated";
    job.accumulate = 1;
    check_run(at_servers(job, workers, servers, Links::shm, "hybrid-colocated"), reference, Links::shm);
  }
  JobOptions job = small_job();
  job.transport = "tcp";
  if (workers == 2) check_run(at_servers(job, workers, 2, Links::tcp, "hybrid"), reference, Links::tcp);
}

TEST_CASE("every model with tables, and every data set of keys") {
  const test::TemporaryFolder folder;
  const auto lines = [&](const char* name, std::size_t count, auto&& line) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += line(i) + "\n";
    test::write_file(folder.file(name), text);
  };
  lines("clicks", 60, [](std::size_t i) {
    return fmt::format("{}\t{}\t{}\t{:x}\t{}", i % 3 == 0 ? 1 : 0, i, i % 4 == 0 ? "" : "2", i % 7,
                       i % 5 == 0 ? "" : fmt::format("{:x}", i * 77777));
  });
  lines("pairs", 60, [](std::size_t i) { return fmt::format("{}\t{}\t{}", i % 7, i % 11, i % 5); });
  lines("packages.tsv", 9,
        [](std::size_t i) { return fmt::format("p{}\tx={}{}", i, i % 4, i % 3 == 0 ? "\ty=1\tz=2" : ""); });
  lines("edges.tsv", 40, [](std::size_t i) { return fmt::format("p{}\tp{}", i % 9, i % 2); });
  lines("text", 41, [](std::size_t i) { return fmt::format("the word {} is a word", i % 3); });
  const std::vector<std::pair<std::string, std::string>> jobs{
      {"fm:dense=4,features=5,dim=4", "criteo-like:samples=40"},
      {"fm:dense=0,features=3,dim=4", "criteo-like:samples=40"},
      {"fm:dense=2,features=2,dim=3", "criteo:" + folder.file("clicks")},
      {"dlrm:dense=2,features=2,dim=4,bottom=4,top=4-1", "criteo:" + folder.file("clicks")},
      {"mf:dim=4", "pairs:" + folder.file("pairs")},
      {"two-tower:dim=4", "debian:" + folder.path()},
      {"two-tower:dim=4,mode=mean", "debian:" + folder.path() + ",negatives=2"},
      {"skip-gram:dim=4,negatives=3", "skip-gram:" + folder.file("text") + ",window=2"}};
  const auto& [model, data] = jobs.at(GENERATE(range(0, 8)));  // the folder is another one each time
  CAPTURE(model, data);
  JobOptions job = small_job();
  job.model = model;
  job.data = data;
  job.table_optimizer = "adagrad";
  const JobRun reference = virtual_workers(job, 2);
  REQUIRE(!reference.workers[0].evaluations.empty());
  CHECK(reference.workers[0].evaluations[0].rows > 0);
  for (const auto& [category, peak] : reference.workers[0].peaks)
    CHECK(peak == reference.workers[0].predicted.worker_memory.at(category));
  check_run(at_servers(job, 2, 3, Links::shm), reference, Links::shm);
  check_run(at_servers(job, 2, 1, Links::shm, "hybrid"), reference, Links::shm);
  job.transport = "tcp";
  job.accumulate = 3;
  check_run(at_servers(job, 2, 2, Links::tcp), virtual_workers(job, 2), Links::tcp);
}

TEST_CASE("ddp, zero1 and zero2 share dense parameters among workers, and have rows at servers") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  const std::size_t workers = GENERATE(1, 3);
  CAPTURE(strategy, workers);
  JobOptions job = small_job();
  job.clip_norm = 0.05;
  const JobRun reference = virtual_workers(job, workers);
  check_run(at_servers(job, workers, 2, Links::shm, strategy), reference, Links::shm);
  job.placement = "colocated";
  check_run(at_servers(job, workers, workers, Links::shm, strategy), reference, Links::shm);
  if (workers == 1) return;
  job.transport = "tcp";
  check_run(at_servers(job, workers, 2, Links::tcp, strategy), reference, Links::tcp);
}

TEST_CASE("every rule, micro-batches, and rows that travel in bf16") {
  const std::string rule = GENERATE("adagrad", "rowwise-adagrad", "adam", "ftrl:l1=0.001");
  JobOptions job = small_job();
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
  JobOptions job = small_job();
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
  JobOptions job = small_job();
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
  JobOptions job = small_job();
  job.consistency = consistency;
  job.table_consistency = rows;
  if (strategy.ends_with("colocated")) job.placement = "colocated";
  if (links == Links::tcp) job.transport = "tcp";
  job.eval_every = 4;
  const JobRun run = at_servers(job, 3, 2, links, strategy);
  check_predicted(run, links);
  for (const test::WorkerRun& worker : run.workers) CHECK(worker.model == run.workers[0].model);
  REQUIRE(run.workers[0].evaluations.size() == 3);
  CHECK(virtual_workers(small_job(), 3).workers[0].model.size() == run.workers[0].model.size());
}

TEST_CASE("one worker has the bits of single under asp as well") {
  JobOptions job = small_job();
  job.schedule = "cosine:warmup=2";
  const JobRun reference = virtual_workers(job, 1);
  job.consistency = "asp";
  check_run(at_servers(job, 1, 2, Links::shm), reference, Links::shm);
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
  JobOptions job = small_job();
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

TEST_CASE("a batch in which a worker has no sample, and evaluations between the steps") {
  JobOptions job = small_job();
  job.data = "criteo-like:samples=25";
  job.global_batch = 8;
  job.pad = "none";
  job.eval_every = 2;
  const JobRun reference = virtual_workers(job, 3);
  const JobRun run = at_servers(job, 3, 2, Links::shm);
  check_run(run, reference, Links::shm);
  REQUIRE(run.workers[0].evaluations.size() == reference.workers[0].evaluations.size());
  for (std::size_t i = 0; i < run.workers[0].evaluations.size(); ++i)
    CHECK(run.workers[0].evaluations[i].own[0].value == reference.workers[0].evaluations[i].own[0].value);
  CHECK(run.workers[1].evaluations.empty());
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
  JobOptions job = small_job();
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
  JobOptions job = small_job();
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
  JobOptions job = small_job();
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
  JobOptions job = small_job();
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

TEST_CASE("options that tables do not have are refused by name") {
  const auto refused = [](auto&& change) {
    JobOptions job = small_job();
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
  for (const char* consistency : {"bsp", "asp", "ssp:0"})
    CHECK_THAT(refused([&](JobOptions& job) {
                 job.consistency = consistency;
                 job.table_cache = 1024;
               }),
               line(fmt::format("--table-cache 1024 with --table-consistency {}", consistency)));
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
                              JobOptions job = small_job();
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

TEST_CASE("an elastic job has memory for the batches of its fewest workers, and the same bits") {
  for (const char* strategy : {"ps", "hybrid"}) {
    JobOptions job = small_job();
    job.recovery = strategy == std::string("ps") ? "servers" : "both";
    job.min_workers = 1;
    job.transport = "tcp";
    const JobRun run = at_servers(job, 3, 2, Links::tcp, strategy);
    CAPTURE(strategy);
    check_run(run, virtual_workers(small_job(), 3), Links::tcp);
    const TableLayout table{.width = 4, .most_keys = 6 * 5};
    CHECK(run.predicted.each_server_memory.at(0).at(Category::communication) ==
          optim::key_list_bytes(table, 3, false, true) + 3 * optim::answer_bytes(table, true));
  }
}

TEST_CASE("servers of tables have followers, and what these and the step before take") {
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp}));
  const auto rule = GENERATE(values<std::string>({"sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl"}));
  JobOptions job = small_job();
  job.table_optimizer = rule;
  job.table_type = rule == "adam" ? "bf16" : "f32";
  job.strategy = "ps";
  job.workers = 2;
  job.servers = 2;
  if (links == Links::tcp) job.transport = "tcp";
  CAPTURE(rule, int(links));
  const JobRun alone = run_job(job, links);
  job.recovery = "servers";
  job.max_restarts = 1;
  const JobRun followed = run_job(job, links, nullptr, {0}, true);
  CHECK((followed.workers[0].model == alone.workers[0].model));
  CHECK(followed.servers_received == alone.servers_received);
  CHECK(followed.servers_sent == alone.servers_sent);
  CHECK(followed.servers_replicated == followed.servers_received);
  REQUIRE(followed.server_peaks.size() == 4);
  const TableLayout table{.width = 4, .most_keys = 3 * 5};
  for (std::size_t server = 0; server < 4; ++server)
    for (const auto& [category, predicted] : followed.predicted.each_server_memory.at(server % 2)) {
      if (category == Category::communication && (links == Links::in_process || server >= 2)) continue;
      CAPTURE(server, to_string(category));
      CHECK(followed.server_peaks[server].at(category) == predicted);
      const std::uint64_t old = category == Category::parameters ? optim::old_row_bytes(table, 2) : 0;
      CHECK(alone.predicted.each_server_memory.at(server % 2).at(category) + old == predicted);
    }
}
