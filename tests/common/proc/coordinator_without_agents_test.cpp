// Processes that no agent starts: who gets the place of a lost process, who waits for it, and who is refused.
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include <psring/tests/common/proc/recovery_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

namespace {

/// A job of two workers and a server whose processes are started from outside, by no agent. All have the number 1, as
/// in containers.
struct JobWithoutAgents : Scene {
  explicit JobWithoutAgents(Keepers keepers) : JobWithoutAgents(plan_for(keepers)) {}
  explicit JobWithoutAgents(const JobPlan& p) : Scene(p) {}
  static JobPlan plan_for(Keepers keepers) {
    JobPlan p = recoverable(2, 1, keepers);
    p.agents = 0;
    p.recovery.patience = Nanoseconds(0);
    return p;
  }
  void join(const std::string& name, Role role, std::uint32_t rank) { hello(name, role, rank); }
  void ready(const std::string& name, std::uint32_t epoch, std::uint64_t step = 0, bool has_state = false) {
    say(name, control::Ready{{{"tcp", "addr-" + name}}, epoch, step, has_state});
  }
  void start() {
    join("w0", Role::worker, 0);
    join("w1", Role::worker, 1);
    join("s0", Role::server, 0);
    for (const char* name : {"w0", "w1", "s0"}) ready(name, 0);
    REQUIRE(has<control::Members>("w0"));
    for (auto& [name, box] : boxes) box.clear();
  }
};

}  // namespace

TEST_CASE("without agents, the next process at a place waits until the previous one counts as lost") {
  JobWithoutAgents job(Keepers::servers);
  job.start();
  job.say("w1", control::Append{"metrics.jsonl", {}, 1});
  const std::string first = job.events.back().process;
  job.say("w0", control::Stuck{0, "worker 1 closed the link"});
  job.join("again", Role::worker, 1);
  CHECK_THAT(job.got<control::Wait>("again").text,
             Contains("worker 1 (host-w1:1), last heard 0.0 s ago, has joined already") && Contains("3 s of silence"));
  job.live_until(2.5, {"w1", "again"});
  CHECK(job.boxes["again"].size() == 1);
  CHECK_FALSE(job.has<control::Regroup>("w0"));
  job.live_until(3.5, {"w1", "again"});
  CHECK_THAT(job.got<control::Regroup>("w0").text, Contains("nothing from worker 1 (host-w1:1)"));
  CHECK(job.got<control::Welcome>("again").epoch == 1);
  CHECK(job.got<control::Welcome>("again").rank == 1);
  job.ready("again", 1);
  job.ready("w0", 1, 57);
  job.ready("s0", 1, 57, true);
  CHECK(job.got<control::Members>("again").self == kWorker1);
  job.say("again", control::Append{"metrics.jsonl", {}, 1});
  CHECK(job.events.back().process != first);  // its first append is not the first append of the previous process
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("without agents, a process that asks for the place of one that lives is refused") {
  JobWithoutAgents job(Keepers::servers);
  job.start();
  job.live_until(1);
  job.now = 1.4;
  job.join("again", Role::server, 0);
  CHECK_THAT(job.got<control::Wait>("again").text, Contains("server 0 (host-s0:1), last heard 0.4 s ago"));
  job.beat("w0");
  CHECK_FALSE(job.has<control::Refused>("again"));
  job.beat("s0");
  CHECK(job.got<control::Refused>("again").kind == ErrorKind::usage);
  CHECK_THAT(job.got<control::Refused>("again").text, Contains("server 0 (host-s0:1)") && Contains("--rank"));
  job.beat("s0");
  CHECK(job.boxes["again"].size() == 2);  // told once
  SECTION("and its place is free once it is lost") {
    job.live_until(6, {"s0", "again"});
    job.boxes.erase("again");
    job.join("third", Role::server, 0);
    CHECK_FALSE(job.has<control::Refused>("third"));
  }
}

TEST_CASE("without agents, the last process that asks for a place gets it, and the others are told") {
  JobWithoutAgents job(Keepers::servers);
  job.start();
  job.join("first", Role::worker, 1);
  job.join("second", Role::worker, 1);
  CHECK(job.has<control::Wait>("second"));
  CHECK_THAT(job.got<control::Refused>("first").text, Contains("another process (host-second:1)"));
  job.live_until(3.5, {"w1", "first", "second"});
  CHECK(job.got<control::Welcome>("second").rank == 1);
  CHECK_FALSE(job.has<control::Welcome>("first"));
}

TEST_CASE("without agents, a process that waits is refused when the job ends") {
  JobWithoutAgents job(Keepers::servers);
  job.start();
  job.join("again", Role::worker, 1);
  job.say("w0", control::Failed{ErrorKind::data, "no such file"});
  CHECK_THAT(job.got<control::Refused>("again").text, Contains("the job has failed"));
}

TEST_CASE("without agents, a process may also come after the loss, and losses are counted once") {
  JobWithoutAgents job(Keepers::servers);
  job.start();
  for (int loss = 1; loss <= 3; ++loss) {
    const double begin = job.now;
    const std::string name = "w1-" + std::to_string(loss);
    job.live_until(begin + 4, {loss == 1 ? "w1" : "w1-" + std::to_string(loss - 1)});
    job.join(name, Role::worker, 1);
    CHECK(job.got<control::Welcome>(name).epoch == static_cast<std::uint32_t>(loss));
    for (const char* other : {"w0", "s0"}) job.ready(other, static_cast<std::uint32_t>(loss), 57, true);
    job.ready(name, static_cast<std::uint32_t>(loss));
    job.boxes.erase(loss == 1 ? "w1" : "w1-" + std::to_string(loss - 1));
  }
  job.live_until(job.now + 4, {"w1-3"});
  CHECK_THAT(job.failure().what(), Contains("--max-restarts 3: no more"));
}

TEST_CASE("without agents, all processes end if nobody keeps the state, and others begin from the checkpoint") {
  JobWithoutAgents job(Keepers::nobody);
  job.start();
  job.live_until(3.5, {"w1"});
  job.ready("w0", 1, 57);
  job.ready("s0", 1, 57);
  CHECK_THAT(job.got<control::Abort>("w0").text, Contains("the job begins again with step 40"));
  CHECK(job.has<control::Abort>("s0"));
  CHECK_FALSE(job.coordinator.result().failure);
  for (const auto& [name, role, rank] :
       {std::tuple("n0", Role::worker, 0U), {"n1", Role::worker, 1U}, {"n2", Role::server, 0U}}) {
    job.join(name, role, rank);
    CHECK(job.got<control::Welcome>(name).job == "anew");
    job.ready(name, 2);
  }
  CHECK(job.has<control::Members>("n0"));
}

TEST_CASE("without agents, a process that comes before the job decides to begin anew waits for that") {
  JobWithoutAgents job(Keepers::nobody);
  job.start();
  job.live_until(3.5, {"w1"});
  job.join("n1", Role::worker, 1);
  job.ready("w0", 1, 57);
  CHECK_THAT(job.got<control::Wait>("n1").text, Contains("which state they keep"));
  job.ready("s0", 1, 57);
  CHECK(job.has<control::Abort>("w0"));
  CHECK(job.got<control::Welcome>("n1").epoch == 2);
  CHECK(job.got<control::Welcome>("n1").job == "anew");
  CHECK_FALSE(job.has<control::Abort>("n1"));
}

TEST_CASE("a silent process with a worker and a colocated server is one loss") {
  JobPlan plan = JobWithoutAgents::plan_for(Keepers::nobody);
  plan.colocated = 1;
  plan.recovery.max_restarts = 1;
  JobWithoutAgents job(plan);
  job.start();
  job.live_until(3.5, {"w0", "s0"});
  CHECK(job.has<control::Regroup>("w1"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("without agents and restarts, a second process at a place is refused") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.hello("again", Role::worker, 1);
  CHECK_THAT(scene.got<control::Refused>("again").text, Contains("has joined already"));
}
