// A job that may do with fewer workers begins with those who have come, and goes on with those who are left.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/tests/common/proc/recovery_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("a job goes on with fewer workers, numbered anew") {
  Job job(elastic(2, 3, 1, Keepers::servers));
  job.start();
  job.kill(kWorker1, "w1");
  CHECK(job.started().empty());
  CHECK_THAT(job.notices(), Contains("going on with 2 of 3 workers, which share the global batch"));
  job.ready("w0", 1, 57);
  job.ready("w2", 1, 57);
  CHECK_FALSE(job.has<control::Members>("w2"));
  job.ready("s0", 1, 57, true);
  CHECK(job.got<control::Members>("w2").self == kWorker1);
  REQUIRE(job.got<control::Members>("w0").members.size() == 3);
  CHECK(job.got<control::Members>("w0").members[1].addresses.at("tcp") == "addr-w2");

  SECTION("its place is nobody's any more") {
    job.join(kWorker1, "late");
    CHECK(job.got<control::Refused>("late").kind == ErrorKind::peer_lost);
  }
  SECTION("those who are left are enough to end with") {
    job.say("w0", control::Resumed{1, 57});
    job.say("w2", control::Resumed{1, 57});
    CHECK_THAT(job.notices(), Contains("going on with step 57"));
    for (const char* name : {"w0", "w2"}) {
      job.say(name, control::Report{"{}"});
      job.say(name, control::Done{});
    }
    CHECK(job.has<control::Finish>("s0"));
  }
  SECTION("but not with fewer than are allowed") {
    job.kill(kWorker2, "w2");
    CHECK_THAT(job.failure().what(),
               Contains("worker 1 (host:104) was ended by signal 9 (Killed); --elastic 2:3: no fewer"));
  }
  SECTION("nor without a server") {
    job.kill(kServer0, "s0");
    CHECK(job.failure().kind() == ErrorKind::peer_lost);
  }
}

TEST_CASE("what can be started again is, before the job goes on with fewer") {
  Job job(elastic(1, 2, 1, Keepers::servers, 1));
  job.start();
  job.kill(kWorker1, "w1");
  CHECK(job.started() == std::vector{kWorker1});
  job.join(kWorker1, "again");
  job.kill(kWorker1, "again");
  CHECK(job.started().size() == 1);
  job.ready("w0", 1, 57);
  job.ready("s0", 1, 57, true);
  CHECK(job.got<control::Members>("w0").members.size() == 2);
}

TEST_CASE("a silent worker that is given up is killed, and not started again") {
  Job job(elastic(1, 2, 0, Keepers::workers));
  job.start();
  job.live_until(3.5, {"w1"});
  CHECK(job.got<control::EndRoles>("g").roles == std::vector{kWorker1});
  job.kill(kWorker1, "w1");
  CHECK(job.started().empty());
  job.ready("w0", 1, 57, true);
  CHECK(job.got<control::Members>("w0").members.size() == 1);
}

TEST_CASE("fewer workers begin anew, too") {
  Job job(elastic(2, 3, 0, Keepers::nobody));
  job.start();
  job.kill(kWorker0, "w0");
  job.ready("w1", 1, 57);
  job.ready("w2", 1, 57);
  job.kill(kWorker1, "w1");
  job.kill(kWorker2, "w2");
  CHECK(job.started() == std::vector{kWorker1, kWorker2});
  job.join(kWorker1, "new1");
  job.join(kWorker2, "new2");
  CHECK(job.got<control::Welcome>("new1").job == "anew");
  job.ready("new1", 2);
  job.ready("new2", 2);
  CHECK(job.got<control::Members>("new1").self == kWorker0);
  CHECK(job.got<control::Members>("new2").self == kWorker1);
}

TEST_CASE("a broken link is somebody's loss, which silence shows where nobody says whose") {
  JobPlan p = elastic(1, 2, 0, Keepers::workers);
  p.agents = 0;
  Job job(p);
  for (const Peer place : {kWorker0, kWorker1}) {
    job.join(place, Job::name_of(place));
    job.ready(Job::name_of(place), 0);
  }
  job.forget();
  job.live_until(1);
  job.say("w0", control::Stuck{0, "worker 1 closed the link"});
  job.live_until(4.5, {"w1"});
  CHECK(job.got<control::Regroup>("w0").epoch == 1);
  job.ready("w0", 1, 57, true);
  CHECK(job.got<control::Members>("w0").members.size() == 1);
}

TEST_CASE("those who are left of a job that cannot start roles need what it goes on with") {
  JobPlan p = elastic(1, 2, 0, Keepers::workers);
  p.agents = 0;
  Job job(p);
  for (const Peer place : {kWorker0, kWorker1}) {
    job.join(place, Job::name_of(place));
    job.ready(Job::name_of(place), 0);
  }
  job.live_until(4, {"w1"});
  job.ready("w0", 1);
  CHECK_THAT(job.failure().what(), Contains("nor can roles be started again"));
}

TEST_CASE("a job that may do with fewer begins with those who have come") {
  JobPlan p = elastic(2, 3, 1, Keepers::servers);
  p.agents = 0;
  Job job(p);
  job.join(kWorker0, "w0");
  job.ready("w0", 0);
  job.join(kWorker2, "w2");
  job.ready("w2", 0);
  SECTION("if these are enough") {
    job.join(kServer0, "s0");
    job.ready("s0", 0);
    job.live_until(seconds(p.join_timeout) + 0.1);
    CHECK(job.got<control::Members>("w2").self == kWorker1);
    CHECK(job.got<control::Members>("w0").members.size() == 3);
  }
  SECTION("if there are servers") {
    job.live_until(seconds(p.join_timeout) + 0.1);
    CHECK(job.failure().kind() == ErrorKind::timeout);
  }
}

TEST_CASE("a host of workers is lost, and the job goes on with the others") {
  JobPlan p = elastic(1, 4, 1, Keepers::servers);
  p.agents = 2;
  p.reserve_agent_0 = true;
  Job job(p);
  job.hello("far", Role::agent, 1);
  for (const std::uint32_t agent : {0, 1})
    for (const Peer place : roles_of_agent(p, agent)) {
      job.join(place, Job::name_of(place));
      job.ready(Job::name_of(place), 0);
    }
  REQUIRE(job.has<control::Members>("w3"));
  job.forget();
  SECTION("the far one") {
    job.live_until(4, {"far", "w2", "w3"});
    CHECK_THAT(job.notices(), Contains("going on with 2 of 4 workers"));
    CHECK_FALSE(job.has<control::EndRoles>("g"));
    for (const char* name : {"w0", "w1"}) job.ready(name, job.got<control::Regroup>(name).epoch, 57);
    job.ready("s0", job.got<control::Regroup>("s0").epoch, 57, true);
    CHECK(job.got<control::Members>("w0").members.size() == 3);
    CHECK_FALSE(job.coordinator.result().failure);
  }
  SECTION("the launcher's own is the end") {
    job.live_until(4, {"g", "w0", "w1", "s0"});
    CHECK(job.failure().kind() == ErrorKind::peer_lost);
  }
}
