// The coordinator decides, when a member is lost, who is started again, and with which state the job goes on.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/tests/common/proc/recovery_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("a lost worker is started again, and the others regroup") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  job.kill(kWorker1, "w1");
  CHECK(job.started() == std::vector{kWorker1});
  CHECK(job.got<control::Regroup>("w0").epoch == 1);
  CHECK_THAT(job.got<control::Regroup>("s0").text, Contains("worker 1 (host:103) was ended by signal 9 (Killed)"));
  CHECK_FALSE(job.coordinator.result().failure);

  job.join(kWorker1, "again");
  CHECK(job.got<control::Welcome>("again").epoch == 1);
  job.ready("again", 1);
  job.ready("w0", 1, 57);
  CHECK_FALSE(job.has<control::Members>("w0"));
  job.ready("s0", 1, 57, true);
  CHECK(job.got<control::Members>("w0").epoch == 1);
  CHECK(job.got<control::Members>("again").self == kWorker1);

  job.now = 0.25;
  job.say("w0", control::Resumed{1, 57});
  job.say("again", control::Resumed{1, 57});
  CHECK_THAT(job.notices(), Contains("epoch 1: going on with step 57, 0.25 s after the loss was noticed"));
}

TEST_CASE("what the epoch that is over still says is not heard") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  job.kill(kWorker1, "w1");
  job.say("w0", control::Report{"{}"});
  job.say("w0", control::Done{});
  job.ready("s0", 0, 57, true);
  job.say("w0", control::Stuck{0, "worker 1 closed the link"});
  job.say("w1", control::Append{"metrics.jsonl", {}, 3});  // written before the end, read after it
  CHECK_FALSE(job.coordinator.result().failure);
  CHECK(job.coordinator.result().reports.empty());
  CHECK(job.events.back().process == "worker-1-103");
  job.join(kWorker1, "again");
  job.ready("again", 1);
  job.ready("w0", 1);
  CHECK_FALSE(job.has<control::Members>("w0"));
}

TEST_CASE("the same process is no member again, however late its messages come") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.join(kWorker0, "w0");
  job.say("g", control::RoleExited{kWorker1, 0, 9, "", 555});
  CHECK(job.started().back() == kWorker1);
  job.say("late", control::Hello{Role::worker, 1, "h", "host", 555});
  CHECK(job.boxes["late"].empty());
  job.join(kWorker1, "w1");
  CHECK(job.has<control::Welcome>("w1"));
}

TEST_CASE("a silent role is killed before another takes its place") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  job.live_until(3.5, {"w1"});
  CHECK(job.got<control::EndRoles>("g").roles == std::vector{kWorker1});
  CHECK(job.started().empty());
  job.kill(kWorker1, "w1");
  CHECK(job.started() == std::vector{kWorker1});
  SECTION("one that had ended by then is told of twice, and started once") {
    job.say("g", control::RoleExited{.role = kWorker1, .signal = 9, .gone = true});
    CHECK(job.started() == std::vector{kWorker1});
    CHECK_FALSE(job.coordinator.result().failure);
  }
}

TEST_CASE("where the state is lost, all begin anew") {
  const auto [keepers, lost] = GENERATE(
      table<Keepers, Peer>({{Keepers::servers, kServer1}, {Keepers::nobody, kWorker0}, {Keepers::nobody, kServer0}}));
  Job job(recoverable(2, 2, keepers));
  job.start();
  job.kill(lost, Job::name_of(lost));
  CHECK(job.started().empty());  // it would be ended again
  for (const Peer place : roles_of_agent(job.job_plan, 0))
    if (place != lost) job.ready(Job::name_of(place), 1, 57, place.role == Role::server);
  CHECK_THAT(job.notices(), Contains("the job begins again with step 40, 17 steps are repeated"));
  CHECK(job.started() == std::vector{lost});
  job.forget();
  for (const Peer place : roles_of_agent(job.job_plan, 0))
    if (place != lost) job.kill(place, Job::name_of(place));
  CHECK(job.started().size() == 3);
  for (const Peer place : roles_of_agent(job.job_plan, 0)) {
    job.join(place, "new " + Job::name_of(place));
    CHECK(job.got<control::Welcome>("new " + Job::name_of(place)).job == "anew");
    job.ready("new " + Job::name_of(place), 2);
  }
  CHECK(job.got<control::Members>("new w1").epoch == 2);
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("who is to be ended joins no more, and so leaves its place to who is started then") {
  Job job(recoverable(2, 0, Keepers::workers));
  job.start();
  job.kill(kWorker0, "w0");
  CHECK(job.started() == std::vector{kWorker0});
  job.ready("w1", 1);  // it has nothing: all begin anew
  job.join(kWorker0, "late");
  CHECK_FALSE(job.has<control::Welcome>("late"));
  job.forget();
  job.kill(kWorker0, "late");
  job.kill(kWorker1, "w1");
  CHECK(job.started() == std::vector{kWorker0, kWorker1});
  job.join(kWorker0, "anew0");
  job.join(kWorker1, "anew1");
  job.ready("anew0", 2);
  job.ready("anew1", 2);
  CHECK(job.has<control::Members>("anew0"));
}

TEST_CASE("where servers and workers keep a part each, the job goes on with both") {
  Job job(recoverable(2, 2, Keepers::both));
  job.start();
  const auto survivors_have = [&](Peer lost, bool workers) {
    job.kill(lost, Job::name_of(lost));
    for (const Peer place : roles_of_agent(job.job_plan, 0))
      if (place != lost) job.ready(Job::name_of(place), 1, 57, place.role == Role::server || workers);
  };
  SECTION("a worker is lost") {
    survivors_have(kWorker1, true);
    CHECK(job.started() == std::vector{kWorker1});
    job.join(kWorker1, "again");
    job.ready("again", 1);
    CHECK(job.got<control::Members>("w0").epoch == 1);
  }
  SECTION("no worker has its part") {
    survivors_have(kWorker1, false);
    CHECK_THAT(job.notices(), Contains("begins again"));
  }
  SECTION("a server's part is lost") {
    survivors_have(kServer0, true);
    CHECK_THAT(job.notices(), Contains("begins again"));
  }
}

TEST_CASE("workers that have all of the state go on with it, unless all of them are lost") {
  Job job(recoverable(2, 0, Keepers::workers));
  job.start();
  job.kill(kWorker0, "w0");
  CHECK(job.started() == std::vector{kWorker0});
  SECTION("one is left") {
    job.ready("w1", 1, 57, true);
    job.join(kWorker0, "again");
    job.ready("again", 1);
    CHECK(job.got<control::Members>("w1").epoch == 1);
  }
  SECTION("none is") {
    job.kill(kWorker1, "w1");
    job.join(kWorker0, "again");
    job.ready("again", 1);
    CHECK_THAT(job.notices(), Contains("begins again"));
    CHECK(job.has<control::EndRoles>("g"));
    job.kill(kWorker0, "again");
    CHECK(job.started().back() == kWorker0);
  }
}

TEST_CASE("a replica takes the place of its server") {
  Job job(recoverable(1, 2, Keepers::servers, true));
  job.start();
  job.kill(kServer1, "s1");
  CHECK(job.started() == std::vector{kServer1});
  job.join(kServer1, "again");
  job.ready("again", 1);
  job.ready("w0", 1, 57);
  job.ready("s0", 1, 57, true);
  job.ready("s2", 1, 57, true);
  job.ready("s3", 1, 57, true);
  CHECK(job.got<control::Members>("s3").self == kServer1);
  CHECK(job.got<control::Members>("again").self == Peer{Role::server, 3});
  CHECK(job.got<control::Members>("w0").members.at(2).addresses.at("tcp") == "addr-s3");
  CHECK_THAT(job.notices(), Contains("the replica of server 1 takes its place"));

  SECTION("and keeps it, until it is lost itself") {
    job.forget();
    job.kill({Role::server, 3}, "s3");
    job.join({Role::server, 3}, "third");
    job.ready("third", 2);
    for (const char* name : {"w0", "s0", "s2"}) job.ready(name, 2, 60, std::string(name) != "w0");
    job.ready("again", 2, 60, true);
    CHECK(job.got<control::Members>("again").self == kServer1);
    CHECK(job.got<control::Members>("third").self == Peer{Role::server, 3});
  }
  SECTION("and both together take the state with them") {
    job.forget();
    job.kill({Role::server, 3}, "s3");
    job.kill(kServer1, "again");
    for (const char* name : {"w0", "s0", "s2"}) job.ready(name, 2, 60, std::string(name) != "w0");
    for (const Peer place : {kServer1, Peer{Role::server, 3}}) {
      job.join(place, "new " + Job::name_of(place));
      job.ready("new " + Job::name_of(place), 2);
    }
    CHECK_THAT(job.notices(), Contains("begins again"));
  }
}

TEST_CASE("losses beyond those that are allowed end the job") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  for (const char* name : {"w1", "second", "third"}) {
    job.kill(kWorker1, name);
    job.join(kWorker1, name == std::string("w1") ? "second" : name == std::string("second") ? "third" : "fourth");
  }
  CHECK_FALSE(job.coordinator.result().failure);
  job.kill(kWorker1, "fourth");
  CHECK_THAT(job.failure().what(), Contains("was ended by signal 9 (Killed); --max-restarts 3: no more"));
}

TEST_CASE("what is no loss of a process ends the job as ever") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  SECTION("an error of its own") {
    job.say("w0", control::Failed{ErrorKind::data, "the loss is not finite"});
    CHECK(job.failure().kind() == ErrorKind::data);
  }
  SECTION("an exit status") {
    job.say("g", control::RoleExited{kServer0, 1, 0, "internal error", job.pids["s0"]});
    CHECK(job.failure().kind() == ErrorKind::bug);
  }
  SECTION("an agent that is lost, with its roles") {
    job.live_until(4, {"g", "w0", "w1", "s0"});
    CHECK(job.failure().kind() == ErrorKind::peer_lost);
  }
}

TEST_CASE("a link that broke where nobody was lost is a new epoch, too") {
  Job job(recoverable(2, 1, Keepers::servers));
  job.start();
  job.say("w0", control::Stuck{0, "server 0 closed the link"});
  CHECK_FALSE(job.has<control::Regroup>("w1"));
  job.live_until(1);
  CHECK_THAT(job.got<control::Regroup>("w1").text, Contains("worker 0 (host:102): server 0 closed the link"));
  CHECK(job.started().empty());
}

TEST_CASE("whoever is lost after the workers are done is not needed") {
  Job job(recoverable(1, 1, Keepers::servers));
  job.start();
  job.say("w0", control::Report{"{}"});
  job.say("w0", control::Done{});
  CHECK(job.has<control::Finish>("s0"));
  job.kill(kServer0, "s0");
  CHECK(job.has<control::Finish>("w0"));
  job.kill(kWorker0, "w0");
  CHECK(job.has<control::Finish>("g"));
  CHECK_FALSE(job.coordinator.result().failure);
}

TEST_CASE("a job that cannot begin anew says why") {
  JobPlan p = recoverable(2, 0, Keepers::nobody);
  p.recovery.begin_anew = [](std::uint32_t) -> RecoveryPlan::Anew { fail(ErrorKind::data, "no such checkpoint"); };
  Job job(p);
  job.start();
  job.kill(kWorker1, "w1");
  job.ready("w0", 1, 57);
  CHECK_THAT(job.failure().what(), Contains("no such checkpoint"));
  CHECK(job.failure().kind() == ErrorKind::data);
}
