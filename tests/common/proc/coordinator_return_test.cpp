// Members come back to the coordinator after a broken link, and to another in the place of one that was lost.
#include <optional>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include <psring/tests/common/proc/recovery_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

namespace {

/// A coordinator in the place of one that was lost, to which the members of a job come back.
struct Second : Job {
  explicit Second(JobPlan p) : Job(second(std::move(p))) {}
  static JobPlan second(JobPlan p) {
    p.recovery.is_second = true;
    return p;
  }
  void back(Peer place, const std::string& name, std::uint32_t epoch, bool running, std::optional<Peer> duty = {}) {
    pids[name] = ++last_pid;
    say(name, control::Hello{place.role, place.rank, "h", "host", pids[name], epoch, duty.value_or(place), running});
  }
};

}  // namespace

TEST_CASE("members come back to a second coordinator, and go on as if it were the first") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "agent", 4, true);
  job.back(kWorker0, "w0", 4, true);
  job.back(kWorker1, "w1", 4, true);
  job.ready("w0", 4);
  job.say("w1", control::Report{"{}"});
  job.say("w1", control::Done{});
  SECTION("all of them") {
    job.back(kServer0, "s0", 4, true);
    CHECK_FALSE(job.has<control::Members>("w0"));
    CHECK_FALSE(job.has<control::Regroup>("w0"));
    job.say("w0", control::Report{"{}"});
    job.say("w0", control::Done{});
    CHECK(job.has<control::Finish>("s0"));
  }
  SECTION("but for one, which was lost in the meantime") {
    job.live_until(6.5);
    CHECK(job.got<control::Regroup>("w0").epoch == 5);
    CHECK(job.got<control::EndRoles>("agent").roles == std::vector{kServer0});
  }
  SECTION("one of which has not heard of the last epoch") {
    job.back(kServer0, "s0", 3, true);
    CHECK(job.got<control::Regroup>("s0").epoch == 5);
    CHECK(job.got<control::Regroup>("w0").epoch == 5);
  }
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a second coordinator records the end of a recovery that the first had begun") {
  JobPlan p = recoverable(2, 1, Keepers::servers);
  p.recovery.recovering = GENERATE(true, false);
  Second job(p);
  job.back({Role::agent, 0}, "g", 4, true);
  job.back(kServer0, "s0", 4, true);
  for (const auto& [place, name] : {std::pair(kWorker0, "w0"), std::pair(kWorker1, "w1")}) {
    job.back(place, name, 4, true);
    job.say(name, control::Resumed{4, 57});
    job.say(name, control::Resumed{4, 57});
  }
  const std::string notice = "epoch 4: going on with step 57, 0.00 s after the loss was noticed\n";
  CHECK(job.notices() == (p.recovery.recovering ? notice : ""));
}

TEST_CASE("duties that had changed stay so") {
  Second job(recoverable(1, 1, Keepers::servers, true));
  job.back({Role::agent, 0}, "agent", 1, true);
  job.back(kWorker0, "w0", 1, true);
  job.back(kServer0, "s0", 1, true, kServer1);
  job.back(kServer1, "s1", 1, true, kServer0);
  job.say("agent", control::RoleExited{kServer0, 0, 9, "", job.pids["s0"]});
  CHECK_THAT(job.got<control::Regroup>("w0").text, Contains("server 1 (host:"));
}

TEST_CASE("to a second coordinator nobody has to come back who had ended well") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "agent", 4, true);
  job.say("agent", control::RoleExited{.role = kServer0, .pid = 7});
  job.back(kWorker0, "w0", 4, true);
  job.say("w0", control::Report{"{}"});
  job.say("w0", control::Done{});
  SECTION("and the others come") {
    job.back(kWorker1, "w1", 4, true);
    job.say("w1", control::Report{"{}"});
    job.say("w1", control::Done{});
    CHECK(job.has<control::Finish>("w1"));
  }
  SECTION("nor who has been lost since") { job.live_until(6.5); }
  CHECK_FALSE(job.has<control::Regroup>("w0"));
  CHECK(job.has<control::Finish>("w0"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a server in a worker's process ends with a job that is over for a second coordinator") {
  JobPlan p = recoverable(2, 2, Keepers::servers);
  p.colocated = 2;
  Second job(p);
  job.back({Role::agent, 0}, "agent", 4, true);
  job.back(kWorker0, "w0", 4, true);
  job.back(kServer0, "s0", 4, true);
  const Peer server1{Role::server, 1};
  SECTION("it says so") {
    job.back(server1, "s1", 4, true);
    job.say("s1", control::Bye{});
  }
  SECTION("its hello comes after the end of the process") {
    job.say("agent", control::RoleExited{.role = kWorker1, .pid = job.last_pid + 1});
    job.back(server1, "s1", 4, true);
  }
  job.live_until(6.5);
  for (const char* name : {"w0", "s0"}) {
    CHECK_FALSE(job.has<control::Regroup>(name));
    job.say(name, control::Report{"{}"});
  }
  job.say("w0", control::Done{});
  CHECK(job.has<control::Finish>("w0"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a job of servers in workers' processes that has ended is over for a second coordinator") {
  JobPlan p = recoverable(2, 2, Keepers::servers);
  p.colocated = 2;
  Second job(p);
  job.back({Role::agent, 0}, "agent", 0, true);
  job.say("agent", control::RoleExited{.role = kWorker0, .pid = 7});
  job.say("agent", control::RoleExited{.role = kWorker1, .pid = 8});
  job.live_until(6.5);
  CHECK(job.has<control::Finish>("agent"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("what is lost while a second coordinator waits is lost once, and nobody is started before all are back") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "agent", 4, true);
  SECTION("as its agent says") {
    job.say("agent", control::RoleExited{kWorker1, 0, 9, "", 77});
    CHECK(job.boxes["agent"].size() <= 2);  // a welcome, and a notice
    job.back(kWorker0, "w0", 4, true);
  }
  SECTION("as another says, too") {
    job.back(kWorker0, "w0", 4, true);
    job.say("w0", control::Stuck{4, "worker 1 closed the link"});
    job.say("agent", control::RoleExited{kWorker1, 0, 9, "", 77});
    job.tick(1);
    job.tick(1.1);
  }
  job.back(kServer0, "s0", 4, true);
  job.live_until(6.5);
  CHECK(job.got<control::Regroup>("w0").epoch == 5);
  CHECK_FALSE(job.has<control::EndRoles>("agent"));  // nothing begins anew
  std::size_t starts = 0;
  for (const auto& message : job.boxes["agent"]) starts += std::holds_alternative<control::StartRoles>(message) ? 1 : 0;
  CHECK(starts == 1);
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a job whose first epoch lost its server and its coordinator at once regroups") {
  Second job(recoverable(1, 1, Keepers::workers));
  job.back({Role::agent, 0}, "g", 0, true);
  const bool all = GENERATE(false, true);
  job.back(kWorker0, "w0", 0, true);
  job.say("w0", control::Stuck{0, "server 0 closed the link"});
  job.say("g", control::RoleExited{kServer0, 0, 9, "", 77});
  if (all) job.say("g", control::RoleExited{kWorker0, 0, 9, "", job.pids["w0"]});
  job.live_until(6.5);
  if (all)
    CHECK_THAT(job.notices(), Contains("the job begins again with step 40"));
  else
    CHECK(job.got<control::Regroup>("w0").epoch == 1);
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a process's end is told of again after the next has come") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "agent", 4, true);
  for (const Peer place : {kWorker0, kWorker1, kServer0}) job.back(place, Job::name_of(place), 4, true);
  job.say("agent", control::RoleExited{kWorker1, 0, 9, "", 77});
  CHECK_FALSE(job.has<control::Regroup>("w0"));
  CHECK_FALSE(job.has<control::StartRoles>("agent"));
}

TEST_CASE("a second coordinator hears again of ends that the first has answered with another start") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "g", 4, true);
  for (const Peer place : {kWorker0, kWorker1, kServer0}) job.say("g", control::RoleExited{place, 0, 9, "", 77});
  for (const Peer place : {kWorker0, kWorker1, kServer0}) job.back(place, Job::name_of(place), 4, true);
  CHECK(job.notices().empty());
  CHECK(job.started().empty());
  CHECK_FALSE(job.has<control::Regroup>("w0"));
  for (const std::string name : {"w0", "w1"}) {
    job.say(name, control::Report{"{}"});
    job.say(name, control::Done{});
  }
  job.say("s0", control::Report{"{}"});
  CHECK(job.has<control::Finish>("w0"));
  for (const Peer place : {kWorker0, kWorker1, kServer0})
    job.say("g", control::RoleExited{.role = place, .pid = job.pids[Job::name_of(place)]});
  CHECK(job.has<control::Finish>("g"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a second coordinator ignores a process that said hello before it ended") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "g", 4, true);
  job.say("g", control::RoleExited{kWorker1, 0, 9, "", 102});
  job.back(kWorker1, "w1", 4, true);  // process 102
  CHECK_FALSE(job.has<control::Welcome>("w1"));
}

TEST_CASE("a link that breaks while restarts are used up by others does not use them up") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back({Role::agent, 0}, "agent", 4, true);
  job.back(kWorker0, "w0", 4, true);
  job.say("w0", control::Stuck{4, "server 0 closed the link"});
  for (double now = 0.5; now < 2; now += 0.1) job.tick(now);
  job.back(kWorker1, "w1", 4, true);
  job.back(kServer0, "s0", 4, true);
  CHECK(job.got<control::Regroup>("s0").epoch == 5);
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("of a server and its replica who come back without having been told, the one with the state serves") {
  Second job(recoverable(1, 1, Keepers::servers, true));
  job.back({Role::agent, 0}, "agent", 2, true);
  job.back(kWorker0, "w0", 2, true);
  job.back(kServer0, "s0", 2, false, kServer0);  // started again, and not told yet that its replica has its place
  job.back(kServer1, "s1", 2, false, kServer0);
  job.live_until(6.5);
  job.ready("w0", 3, 57);
  job.ready("s0", 3);
  job.ready("s1", 3, 57, true);
  CHECK(job.got<control::Members>("s1").self == kServer0);
  CHECK(job.got<control::Members>("s0").self == kServer1);
}

TEST_CASE("a second coordinator knows who was given up") {
  JobPlan p = elastic(1, 3, 1, Keepers::servers, 5);
  p.recovery.given_up = {kWorker1};
  p.recovery.restarts = 5;
  Second job(p);
  job.back({Role::agent, 0}, "agent", 4, true);
  job.back(kWorker0, "w0", 4, true);
  job.back(kWorker2, "w2", 4, true, kWorker1);
  job.back(kServer0, "s0", 4, true);
  CHECK_FALSE(job.has<control::Regroup>("w0"));
  for (const char* name : {"w0", "w2"}) {
    job.say(name, control::Report{"{}"});
    job.say(name, control::Done{});
  }
  CHECK(job.has<control::Finish>("s0"));
}

TEST_CASE("nobody comes back to a place that is not its own") {
  Second job(recoverable(2, 1, Keepers::servers));
  job.back(kWorker0, "w0", 0, true);
  job.back(kWorker1, "w1", 0, true, kWorker0);
  CHECK(job.has<control::Refused>("w1"));
  job.back({Role::worker, 7}, "x", 0, true);
  CHECK(job.has<control::Refused>("x"));
  job.back(kWorker0, "y", 0, true);
  CHECK(job.has<control::Refused>("y"));
}

TEST_CASE("who comes back to the same coordinator hears again what it may have missed") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  const auto back = [&](Peer place, const std::string& name, const std::string& connection, std::uint32_t epoch,
                        bool running) {
    job.say(connection, control::Hello{place.role, place.rank, "h", "host", job.pids[name], epoch, place, running});
  };
  SECTION("and may say again what it has said") {
    back(kWorker0, "w0", "w0 again", 0, true);
    job.ready("w0 again", 0);
    CHECK_FALSE(job.has<control::Members>("w0 again"));
  }
  SECTION("its members") {
    back(kWorker0, "w0", "w0 again", 0, false);
    CHECK(job.got<control::Members>("w0 again").self == kWorker0);
  }
  SECTION("an epoch") {
    job.kill(kWorker1, "w1");
    back(kServer0, "s0", "s0 again", 0, true);
    CHECK(job.got<control::Regroup>("s0 again").epoch == 1);
  }
  SECTION("an order") {
    job.kill(kWorker1, "w1");
    job.say("g again", control::Hello{Role::agent, 0, "h", "host-g", 1, 0, {Role::agent, 0}, false});
    CHECK(job.got<control::StartRoles>("g again").roles == std::vector{kWorker1});
  }
  CHECK_FALSE(job.coordinator.result().failure);
}
