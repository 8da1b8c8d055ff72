// Tables at servers change where rows are, and nothing else: bits of the model and its rows, bytes, memory.
#include <catch2/catch.hpp>

#include <psring/optim/rows/old_rows.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/tests/exchange/table_jobs.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/model/test_metrics.h>

using namespace psring;
using namespace psring::test;

TEST_CASE("single books what it predicts, and learns") {
  JobOptions job = table_job();
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
  const JobRun reference = virtual_workers(table_job(), workers);
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(workers, servers);
    check_run(at_servers(table_job(), workers, servers), reference);
  }
}

TEST_CASE("over shared memory and TCP as well") {
  const Links links = GENERATE(Links::shm, Links::tcp, Links::tcp_encrypted);
  const JobRun reference = virtual_workers(table_job(), 2);
  JobOptions job = table_job();
  if (links != Links::shm) job.transport = "tcp";
  check_run(at_servers(job, 2, 3, links), reference, links);
}

TEST_CASE("with servers in workers' processes, what stays in a process is not sent") {
  const std::size_t workers = GENERATE(2, 3);
  const Links links = GENERATE(Links::shm, Links::tcp);
  const JobRun reference = virtual_workers(table_job(), workers);
  for (std::size_t servers = 1; servers <= workers; ++servers) {
    CAPTURE(workers, servers);
    JobOptions job = table_job();
    job.placement = "colocated";
    if (links == Links::tcp) job.transport = "tcp";
    check_run(at_servers(job, workers, servers, links, "ps-colocated"), reference, links);
  }
}

TEST_CASE("hybrid: dense gradients are averaged among workers, and rows are at servers") {
  const std::size_t workers = GENERATE(1, 2, 3);
  const JobRun reference = virtual_workers(table_job(), workers);
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(workers, servers);
    JobOptions job = table_job();
    job.accumulate = servers == 2 ? 2 : 1;
    check_run(at_servers(job, workers, servers, Links::shm, "hybrid"),
              job.accumulate == 1 ? reference : virtual_workers(job, workers), Links::shm);
    if (servers > workers) continue;
    job.placement = "colocated";
    job.accumulate = 1;
    check_run(at_servers(job, workers, servers, Links::shm, "hybrid-colocated"), reference, Links::shm);
  }
  JobOptions job = table_job();
  job.transport = "tcp";
  if (workers == 2) check_run(at_servers(job, workers, 2, Links::tcp, "hybrid"), reference, Links::tcp);
}

TEST_CASE("ddp, zero1 and zero2 share dense parameters among workers, and have rows at servers") {
  const std::string strategy = GENERATE("ddp", "zero1", "zero2");
  const std::size_t workers = GENERATE(1, 3);
  CAPTURE(strategy, workers);
  JobOptions job = table_job();
  job.clip_norm = 0.05;
  const JobRun reference = virtual_workers(job, workers);
  check_run(at_servers(job, workers, 2, Links::shm, strategy), reference, Links::shm);
  job.placement = "colocated";
  check_run(at_servers(job, workers, workers, Links::shm, strategy), reference, Links::shm);
  if (workers == 1) return;
  job.transport = "tcp";
  check_run(at_servers(job, workers, 2, Links::tcp, strategy), reference, Links::tcp);
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
  JobOptions job = table_job();
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

TEST_CASE("a batch in which a worker has no sample, and evaluations between the steps") {
  JobOptions job = table_job();
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

TEST_CASE("an elastic job has memory for the batches of its fewest workers, and the same bits") {
  for (const char* strategy : {"ps", "hybrid"}) {
    JobOptions job = table_job();
    job.recovery = strategy == std::string("ps") ? "servers" : "both";
    job.min_workers = 1;
    job.transport = "tcp";
    const JobRun run = at_servers(job, 3, 2, Links::tcp, strategy);
    CAPTURE(strategy);
    check_run(run, virtual_workers(table_job(), 3), Links::tcp);
    const TableLayout table{.width = 4, .most_keys = 6 * 5};
    CHECK(run.predicted.each_server_memory.at(0).at(Category::communication) ==
          optim::key_list_bytes(table, 3, false, true) + 3 * optim::answer_bytes(table, true));
  }
}

TEST_CASE("servers of tables have followers, and what these and the step before take") {
  const auto links = GENERATE(values({Links::in_process, Links::shm, Links::tcp}));
  const auto rule = GENERATE(values<std::string>({"sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl"}));
  JobOptions job = table_job();
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
