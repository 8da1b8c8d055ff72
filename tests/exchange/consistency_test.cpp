// ssp and asp: clocks, staleness, who waits for whom, and what is done about stale gradients; and backup workers.
#include <cmath>
#include <cstring>

#include <catch2/catch.hpp>

#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;

namespace {

using Types = std::vector<FrameType>;

Types types(const std::vector<Reply>& replies) {
  Types list;
  for (const Reply& reply : replies) list.push_back(reply.header.type);
  return list;
}

/// One piece of one unit, of one server's.
const Layout kLayout = make_layout({{"u", {{{"a", {512}, {Init::Kind::normal, 1}}, 0}}}}, 1);
const Piece kPiece = make_pieces(kLayout)[0];

std::vector<float> gradient(std::uint64_t seed) { return normal_values(512, seed); }

struct OpenCluster : ShardCluster {
  explicit OpenCluster(const ShardRules& rules) : ShardCluster(rules) { open(kLayout); }
};

Frame push_pull(std::uint32_t worker, std::uint64_t step, const std::vector<float>& values) {
  return push_frame(worker, kPiece, step, values, FrameType::push_pull);
}

Frame leave_frame(std::uint32_t worker) {
  Frame frame;
  frame.header.type = FrameType::leave;
  frame.header.sender_rank = worker;
  return frame;
}

std::vector<float> start() {
  std::vector<float> values(512);
  initialise(kLayout.units[0], {0, 512}, 3, values);
  return values;
}

void step(std::vector<float>& values, const std::vector<float>& gradient, float lr) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::fma(-lr, gradient[i], values[i]);
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a consistency is bsp, ssp with a bound, or asp") {
  CHECK_FALSE(parse_consistency("bsp").each_push_updates);
  CHECK(parse_consistency("ssp:3").bound == 3);
  CHECK(parse_consistency("ssp:0").each_push_updates);
  CHECK_FALSE(parse_consistency("asp").bound.has_value());
  for (const char* text : {"ssp", "ssp:", "ssp:-1", "asp:1", "bsp:2", "banana"})
    CHECK(error_of([&] { parse_consistency(text); }).find("--consistency") != std::string::npos);
  for (const char* text : {"dc-asgd:lambda=0", "dc-asgd:l=1", "scale-lr:2", "banana"})
    CHECK(error_of([&] { parse_remedy(text); }).find("--remedy") != std::string::npos);
}

TEST_CASE("asp: each push is an update, without 1/n, and the answer tells how stale it was") {
  OpenCluster cluster({.workers = 3, .consistency = "asp"});
  std::vector<float> expected = start();
  for (std::uint32_t worker = 0; worker < 3; ++worker) cluster.send(0, pull_frame(worker, kPiece, 0));
  struct Push {
    std::uint32_t worker;
    std::uint64_t step;
    std::uint32_t staleness;
    std::uint32_t lag;
  };
  std::uint64_t version = 0;
  // Worker 2 does one step while worker 0 does three: others' updates in between, and steps ahead of the slowest.
  for (const Push& push :
       {Push{0, 0, 0, 0}, Push{0, 1, 0, 1}, Push{1, 0, 2, 0}, Push{0, 2, 1, 2}, Push{2, 0, 4, 0}, Push{1, 1, 2, 0}}) {
    CAPTURE(push.worker, push.step);
    const std::vector<float> g = gradient(10 * push.worker + push.step);
    // The schedule halves the rate every two steps: it reads a third of the updates.
    step(expected, g, 0.1F * (version / 3 >= 2 ? 0.5F : 1));
    const auto replies = cluster.send(0, push_pull(push.worker, push.step, g));
    REQUIRE(types(replies) == Types{FrameType::values});
    CHECK(replies[0].to.rank == push.worker);
    CHECK(replies[0].header.version == ++version);
    CHECK(replies[0].header.staleness == push.staleness);
    CHECK(replies[0].header.lag == push.lag);
    CHECK(replies[0].values() == expected);
  }
  const auto& seen = cluster.shard(0).staleness();
  CHECK(seen[0].updates == 3);
  CHECK(seen[0].most_lag == 2);
  CHECK(seen[2].sum == 4);
  CHECK(seen[2].bins == std::vector<std::uint64_t>{0, 0, 0, 0, 1});
}

TEST_CASE("asp: a repeated push is acknowledged and not applied, one out of turn is refused") {
  OpenCluster cluster({.workers = 2, .consistency = "asp"});
  std::vector<float> expected = start();
  Frame frame = push_pull(1, 0, gradient(1));
  cluster.send(0, frame);
  step(expected, gradient(1), 0.1F);
  CHECK(cluster.send(0, frame).at(0).values() == expected);
  Frame push = push_frame(1, kPiece, 0, gradient(1));
  push.header.flags = FrameHeader::kWantAck;
  CHECK(types(cluster.send(0, push)) == Types{FrameType::push_ack});
  CHECK(cluster.pull(kLayout, 0, 0) == expected);
  CHECK(cluster.send(0, push_pull(1, 2, gradient(1))).at(0).text().find("step 1 is due") != std::string::npos);
}

TEST_CASE("ssp: nobody goes on who is too far ahead of the slowest") {
  OpenCluster cluster({.workers = 2, .consistency = "ssp:1"});
  CHECK(types(cluster.send(0, push_pull(0, 0, gradient(1)))) == Types{FrameType::values});  // clock 1 of 0
  CHECK(cluster.send(0, push_pull(0, 1, gradient(2))).empty());                             // applied; clock 2 of 0
  CHECK(cluster.shard(0).version() == 2);
  const auto replies = cluster.send(0, push_pull(1, 0, gradient(3)));  // clock 1: both may go on
  REQUIRE(types(replies) == Types{FrameType::values, FrameType::values});
  for (const Reply& reply : replies) CHECK(reply.header.version == 3);
  CHECK(cluster.shard(0).staleness()[0].most_lag == 1);
}

TEST_CASE("who has left is not waited for, and the final version is everybody's last") {
  OpenCluster cluster({.workers = 3, .consistency = "ssp:0"});
  CHECK(cluster.send(0, push_pull(0, 0, gradient(1))).empty());
  CHECK(cluster.send(0, push_pull(1, 0, gradient(2))).empty());
  CHECK(types(cluster.send(0, leave_frame(2))) == Types{FrameType::values, FrameType::values});
  CHECK(cluster.send(0, leave_frame(2)).empty());  // said again
  CHECK(cluster.send(0, push_pull(2, 0, gradient(3))).at(0).text().find("has left") != std::string::npos);
  cluster.send(0, leave_frame(0));
  CHECK(cluster.send(0, pull_frame(0, kPiece, kFinalVersion)).empty());
  cluster.send(0, push_frame(1, kPiece, 1, gradient(4)));
  CHECK(cluster.send(0, pull_frame(2, kPiece, kFinalVersion)).empty());
  std::vector<float> expected = start();
  for (const std::uint64_t seed : {1, 2, 4}) step(expected, gradient(seed), 0.1F);
  const auto replies = cluster.send(0, leave_frame(1));
  REQUIRE(types(replies) == Types{FrameType::values, FrameType::values});
  for (const Reply& reply : replies) {
    CHECK(reply.header.version == kFinalVersion);
    CHECK(reply.values() == expected);
  }
}

TEST_CASE("an answer is a copy of one version until its worker asks again") {
  OpenCluster cluster({.workers = 2, .consistency = "asp"});
  const auto replies = cluster.send(0, push_pull(0, 0, gradient(1)));
  REQUIRE(replies.size() == 1);
  for (std::uint64_t s = 0; s < 5; ++s) cluster.send(0, push_pull(1, s, gradient(20 + s)));
  CHECK(std::memcmp(replies[0].stood_at, replies[0].payload.data(), replies[0].payload.size()) == 0);
}

TEST_CASE("remedies: the rate falls with staleness, or the gradient is moved to today's values") {
  const std::vector<float> g0 = gradient(1);
  const std::vector<float> g1 = gradient(2);
  const auto after = [&](const std::string& remedy) {
    OpenCluster cluster({.workers = 2, .consistency = "asp", .remedy = remedy});
    for (std::uint32_t worker : {0, 1}) cluster.send(0, pull_frame(worker, kPiece, 0));
    cluster.send(0, push_pull(0, 0, g0));
    return cluster.send(0, push_pull(1, 0, g1)).at(0).values();
  };
  const std::vector<float> then = start();
  std::vector<float> fresh = then;
  step(fresh, g0, 0.1F);
  std::vector<float> expected = fresh;
  step(expected, g1, 0.1F / 2);
  CHECK(after("scale-lr") == expected);
  std::vector<float> moved(512);
  for (std::size_t i = 0; i < 512; ++i) moved[i] = g1[i] + 0.5F * g1[i] * g1[i] * (fresh[i] - then[i]);
  expected = fresh;
  step(expected, moved, 0.1F);
  CHECK(after("dc-asgd:lambda=0.5") == expected);
}

TEST_CASE("backup workers: an update takes the first gradients, and drops those that come later") {
  OpenCluster cluster({.workers = 3, .backups = 1});
  CHECK(cluster.send(0, push_pull(2, 0, gradient(2))).empty());
  CHECK(cluster.send(0, push_pull(0, 0, gradient(1))).size() == 2);
  std::vector<float> expected = start();
  for (std::size_t i = 0; i < 512; ++i)
    expected[i] = std::fma(-0.1F, (gradient(1)[i] + gradient(2)[i]) * 0.5F, expected[i]);
  for (std::uint32_t worker : {0, 2}) cluster.send(0, push_frame(worker, kPiece, 1, std::vector<float>(512)));
  const auto late = cluster.send(0, push_pull(1, 0, gradient(3)));
  REQUIRE(types(late) == Types{FrameType::values});
  CHECK(late[0].header.version == 2);  // it goes on from there
  CHECK(late[0].values() == expected);
  CHECK(cluster.shard(0).staleness()[1].dropped == 1);
  CHECK(cluster.shard(0).staleness()[0].updates == 2);
}

TEST_CASE("backup workers: an answer that leaves late is still of the version that it names") {
  OpenCluster cluster({.workers = 3, .backups = 1});
  CHECK(cluster.send(0, push_pull(2, 0, gradient(2))).empty());
  const auto replies = cluster.send(0, push_pull(0, 0, gradient(1)));
  REQUIRE(replies.size() == 2);
  for (const Reply& reply : replies) CHECK(reply.header.version == 1);
  // Worker 2 does not read what it was sent; the others go on without it.
  for (std::uint64_t s = 1; s < 6; ++s)
    for (std::uint32_t worker : {0, 1}) cluster.send(0, push_frame(worker, kPiece, s, gradient(20 * s + worker)));
  CHECK(cluster.shard(0).version() == 6);
  for (const Reply& reply : replies)
    CHECK(std::memcmp(reply.stood_at, reply.payload.data(), reply.payload.size()) == 0);
}

namespace {

JobOptions small_job(const std::string& strategy, const std::string& consistency, std::size_t workers) {
  JobOptions job = test::small_job("mlp:20-33-17-5", 9);
  job.strategy = strategy;
  job.consistency = consistency;
  job.workers = workers;
  job.servers = 2;
  return job;
}

void check_predicted(const JobRun& run) {
  for (const WorkerRun& worker : run.workers) {
    CHECK(worker.steps.size() == run.steps);
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
    CHECK((worker.model == run.workers[0].model));  // the final version
  }
  CHECK(run.servers_received == run.steps * run.predicted.server_receives.value());
  CHECK(run.servers_sent == run.steps * run.predicted.server_sends.value());
  for (const auto& peaks : run.server_peaks)
    for (const auto& [category, bytes] : run.predicted.server_memory)
      if (category != Category::communication) CHECK(peaks.at(category) == bytes);  // copies of answers: process tests
}

}  // namespace

TEST_CASE("one worker alone is never stale: asp and ssp end in single's bits") {
  const JobRun single = [] {
    JobOptions job = small_job("single", "bsp", 1);
    job.servers = 0;
    return run_job(job);
  }();
  for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"})
    for (const char* consistency : {"asp", "ssp:0"})
      for (const char* remedy : {"none", "scale-lr", "dc-asgd"}) {
        CAPTURE(strategy, consistency, remedy);
        JobOptions job = small_job(strategy, consistency, 1);
        job.remedy = remedy;
        const JobRun run = run_job(job, Links::shm);
        CHECK((run.workers[0].model == single.workers[0].model));
        check_predicted(run);
      }
}

TEST_CASE("asp and ssp move the bytes of bsp, keep what the formulas say, and all end with one model") {
  for (const Links links : {Links::in_process, Links::shm, Links::tcp})
    for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"})
      for (const char* consistency : {"asp", "ssp:2"})
        for (const char* remedy : {"none", "dc-asgd"}) {
          CAPTURE(strategy, consistency, remedy);
          JobOptions job = small_job(strategy, consistency, 3);
          job.remedy = remedy;
          check_predicted(run_job(job, links));
        }
}

TEST_CASE("under asp a worker clips what it pushes") {
  JobOptions job = small_job("ps", "asp", 1);
  job.clip_norm = 0.05;
  JobOptions single = small_job("single", "bsp", 1);
  single.servers = 0;
  single.clip_norm = 0.05;
  single.optimizer = job.optimizer = "sgd";
  // A scaled gradient is rounded before it is used, where single scales it within the update: near, not equal.
  const JobRun clipped = run_job(job, Links::shm);
  const JobRun expected = run_job(single);
  for (std::size_t s = 0; s < 9; ++s)
    CHECK(clipped.workers[0].steps[s].loss == Approx(expected.workers[0].steps[s].loss).epsilon(1e-5));
  job.clip_norm = 0;
  CHECK(run_job(job, Links::shm).workers[0].steps[8].loss != Approx(expected.workers[0].steps[8].loss).epsilon(1e-5));
}

TEST_CASE("with backup workers a run ends, and all have its parameters") {
  for (const char* strategy : {"ps", "ps-zero2", "ps-zero3"}) {
    CAPTURE(strategy);
    JobOptions job = small_job(strategy, "bsp", 3);
    job.backup_workers = 1;
    const JobRun run = run_job(job, Links::tcp);
    for (const WorkerRun& worker : run.workers) {
      CHECK((worker.model == run.workers[0].model));
      CHECK(worker.steps.size() <= run.steps);
    }
  }
}
