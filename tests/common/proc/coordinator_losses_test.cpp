#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/coordinator/coordinator.h>
#include <psring/tests/support/coordinator_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;

TEST_CASE("an agent without roles is lost when it is silent") {
  Scene scene(plan(1, 0, 2));
  scene.hello("a", Role::agent);
  scene.hello("idle", Role::agent);
  scene.hello("w", Role::worker);
  scene.say("w", control::Ready{{{"tcp", "addr"}}});
  scene.live_until(20, {"idle"});
  CHECK(scene.failure().kind() == ErrorKind::peer_lost);
  CHECK_THAT(scene.failure().what(), Contains("agent 1"));
}

TEST_CASE("the end of a member's process loses it, once what it has sent had time to arrive") {
  const std::string how = GENERATE("silent", "failed", "done");
  CAPTURE(how);
  Scene scene(plan(2, 1));
  scene.start();
  CHECK(scene.joined == std::vector<std::string>{"a", "b", "s"});
  scene.live_until(10);
  scene.keep(scene.coordinator.process_ended("b", at(scene.now)));
  if (how == "failed") scene.say("b", control::Failed{ErrorKind::data, "no such file"});
  if (how == "done")
    for (const char* name : {"a", "b"}) {
      scene.say(name, control::Done{});
      scene.say(name, control::Report{"{}"});
    }
  scene.live_until(10.4, {"b"});
  if (how != "failed") CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(11, {"b"});
  if (how == "silent") {
    CHECK(scene.failure().kind() == ErrorKind::peer_lost);
    CHECK(scene.failure().what() == std::string("worker 1 (host-b:1) exited before the workers were done"));
  }
  if (how == "failed") CHECK(scene.failure().what() == std::string("worker 1 (host-b:1): no such file"));
  if (how == "done") {
    scene.say("s", control::Report{"{}"});
    for (const char* name : {"a", "s"}) scene.say(name, control::Bye{});
    CHECK_FALSE(scene.coordinator.result().failure);
    CHECK(scene.coordinator.ended());
  }
}

TEST_CASE("a program's decision to end the job is no symptom of another's loss") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("b", control::Failed{ErrorKind::peer_lost, "ValueError: broken", true});
  CHECK(scene.failure().what() == std::string("worker 1 (host-b:1): ValueError: broken"));
}

TEST_CASE("silence loses a member, once, and everybody is told who") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.live_until(10);
  scene.live_until(12.5, {"b"});
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(13, {"b"});
  CHECK(scene.failure().kind() == ErrorKind::peer_lost);
  CHECK(scene.failure().what() ==
        std::string("nothing from worker 1 (host-b:1) for 3.0 s before the workers were done"));
  for (const char* name : {"a", "s"}) {
    CHECK(scene.got<control::Lost>(name).peer == Peer{Role::worker, 1});
    CHECK_THAT(scene.got<control::Abort>(name).text, Contains("worker 1"));
  }
  CHECK(scene.has<control::Abort>("b"));  // it may be stopped only, and must end when it wakes
  scene.live_until(14, {"b", "s"});
  CHECK(scene.got<control::Lost>("a").peer == Peer{Role::worker, 1});  // still one
}

TEST_CASE("next_tick is when the first silence would be too long") {
  Scene scene(plan(2, 1));
  CHECK(scene.coordinator.next_tick() == at(30));
  scene.hello("a", Role::worker);
  CHECK(scene.coordinator.next_tick() == at(3));
  scene.now = 1;
  scene.hello("b", Role::worker);
  CHECK(scene.coordinator.next_tick() == at(3));
  scene.beat("a");
  CHECK(scene.coordinator.next_tick() == at(4));
}

TEST_CASE("the coordinator's own standstill is nobody's silence") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.tick(100);
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(103.5, {"b"});
  CHECK_THAT(scene.failure().what(), Contains("worker 1"));
}

TEST_CASE("deadlines wait for a coordinator that stood still") {
  Scene scene(plan(2, 1));
  scene.hello("a", Role::worker);
  scene.now = 50;
  scene.coordinator.stood_still(from_seconds(45), at(50));
  scene.tick(50);
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(74);
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(75);
  CHECK_THAT(scene.failure().what(), Contains("--join-timeout"));
}

TEST_CASE("an agent that stands still is not lost while its roles live") {
  Scene scene(plan(2, 1, 1));
  scene.hello("g", Role::agent);
  scene.start();
  scene.live_until(20, {"g"});
  CHECK_FALSE(scene.coordinator.result().failure);
  SECTION("it may go on") {
    scene.live_until(30);
    CHECK_FALSE(scene.coordinator.result().failure);
  }
  SECTION("the job may end meanwhile") {
    for (const char* name : {"a", "b", "s"}) scene.say(name, control::Report{"{}"});
    for (const char* name : {"a", "b"}) scene.say(name, control::Done{});
    for (const char* name : {"a", "b", "s"}) scene.say(name, control::Bye{});
    scene.live_until(40, {"g", "a", "b", "s"});
    CHECK(scene.has<control::Finish>("g"));
    CHECK(scene.coordinator.ended());
    CHECK_FALSE(scene.coordinator.result().failure);
  }
  SECTION("a role that is lost is noticed") {
    scene.live_until(24, {"g", "b"});
    CHECK(scene.failure().kind() == ErrorKind::peer_lost);
  }
}

TEST_CASE("a member's own failure is the cause, and what follows is not") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("b", control::Failed{ErrorKind::data, "no such file"});
  scene.say("s", control::Failed{ErrorKind::peer_lost, "worker 1 is gone"});
  CHECK(scene.failure().kind() == ErrorKind::data);
  CHECK(scene.failure().what() == std::string("worker 1 (host-b:1): no such file"));
  CHECK(scene.got<control::Abort>("a").text == "worker 1 (host-b:1): no such file");
  CHECK(scene.got<control::Abort>("s").kind == ErrorKind::data);
  CHECK(scene.coordinator.result().status() == 3);
  for (const char* name : {"a", "b", "s"}) scene.say(name, control::Bye{});
  CHECK(scene.coordinator.ended());
}

TEST_CASE("whoever does not leave after a failure is not waited for for long") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("b", control::Failed{ErrorKind::data, "no"});
  scene.say("a", control::Bye{});
  scene.say("b", control::Bye{});
  SECTION("where it is silent") {
    scene.tick(3);
    CHECK(scene.coordinator.ended());
  }
  SECTION("where it lives") {
    scene.live_until(9.5);
    CHECK_FALSE(scene.coordinator.ended());
    scene.live_until(10);
    CHECK(scene.coordinator.ended());
  }
  CHECK(scene.coordinator.result().status() == 3);
}

TEST_CASE("that a peer was lost waits for what its agent has to say") {
  Scene scene(plan(2, 1, 1));
  scene.hello("g", Role::agent);
  scene.start();
  const control::Failed symptom{ErrorKind::peer_lost, "server 0 closed the connection"};
  const control::RoleExited cause{{Role::server, 0}, 0, 9, ""};
  const std::string killed = "server 0 (host-s:1) was ended by signal 9 (Killed)";
  scene.now = 1;
  SECTION("which may come after it") {
    scene.say("a", symptom);
    scene.say("a", control::Bye{});
    scene.say("g", control::RoleExited{{Role::worker, 0}, 4, 0, "server 0 closed the connection"});
    scene.say("b", symptom);
    CHECK_FALSE(scene.coordinator.result().failure);
    CHECK(scene.coordinator.next_tick() == at(1.5));
    scene.say("g", cause);
    CHECK(scene.failure().what() == killed);
    CHECK(scene.got<control::Abort>("b").text == killed);
    scene.tick(2);
    CHECK(scene.failure().what() == killed);
  }
  SECTION("or before it") {
    scene.say("g", cause);
    scene.say("a", symptom);
    CHECK(scene.failure().what() == killed);
  }
  SECTION("or what another role says of itself") {
    scene.say("a", symptom);
    scene.say("s", control::Failed{ErrorKind::data, "out of memory"});
    CHECK(scene.failure().what() == std::string("server 0 (host-s:1): out of memory"));
  }
  SECTION("but not for long") {
    scene.say("a", symptom);
    scene.say("b", control::Failed{ErrorKind::peer_lost, "later"});
    scene.tick(1.4);
    CHECK_FALSE(scene.coordinator.result().failure);
    scene.live_until(2, {"a", "b"});  // all others live: a link was lost, and no process
    CHECK(scene.failure().what() == std::string("worker 0 (host-a:1): server 0 closed the connection"));
    CHECK(scene.got<control::Abort>("s").kind == ErrorKind::peer_lost);
  }
  SECTION("and longer if a member is not heard, which its silence names") {
    scene.say("a", symptom);
    scene.live_until(2.5, {"a", "s"});
    CHECK_FALSE(scene.coordinator.result().failure);
    scene.live_until(3, {"a", "s"});
    CHECK_THAT(scene.failure().what(), Contains("nothing from server 0 (host-s:1) for 3.0 s"));
    CHECK(scene.got<control::Abort>("b").culprit == Peer{Role::server, 0});
  }
  SECTION("and an agent speaks for itself") {
    scene.say("g", control::Failed{ErrorKind::peer_lost, "interrupted"});
    CHECK(scene.failure().what() == std::string("agent 0 (host-g:1): interrupted"));
  }
}

TEST_CASE("a loss that is told while the job is ending fails it all the same") {
  Scene scene(plan(1, 0, 1));
  scene.hello("g", Role::agent);
  scene.hello("a", Role::worker);
  scene.say("a", control::Ready{});
  scene.say("a", control::Report{});
  scene.say("a", control::Failed{ErrorKind::peer_lost, "somebody"});
  scene.say("a", control::Done{});
  scene.say("g", control::RoleExited{{Role::worker, 0}, 4, 0, "somebody"});
  CHECK_FALSE(scene.has<control::Finish>("g"));
  scene.live_until(0.5, {"a"});
  CHECK(scene.failure().what() == std::string("worker 0 (host-a:1): somebody"));
}

TEST_CASE("a loss is the lost process's, not the first survivor's, without agents too") {
  Scene scene(plan(3, 0));
  for (const char* name : {"a", "b", "c"}) scene.hello(name, Role::worker);
  for (const char* name : {"a", "b", "c"}) scene.say(name, control::Ready{});
  scene.live_until(10);
  // "c" is killed. "b" sees it, and ends; "a" sees only the end of "b".
  scene.say("b", control::Failed{ErrorKind::peer_lost, "worker 2 closed the connection"});
  scene.say("b", control::Bye{});
  scene.say("a", control::Failed{ErrorKind::peer_lost, "worker 1 closed the connection"});
  scene.live_until(12.5, {"b", "c"});
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(13, {"b", "c"});
  CHECK_THAT(scene.failure().what(), Contains("nothing from worker 2 (host-c:1) for 3.0 s"));
  CHECK_THAT(scene.got<control::Abort>("a").text, Contains("worker 2 (host-c:1)"));
}

TEST_CASE("which servers and followers are missing is said, in the end and meanwhile") {
  JobPlan p = plan(1, 4);
  p.replicas = true;
  Scene scene(p);
  scene.hello("w", Role::worker);
  scene.say("w", control::Ready{});
  const auto notice = [&] {
    std::string last;
    for (const auto& event : scene.events)
      if (const auto* told = std::get_if<control::Notice>(&event.what)) last = told->text;
    return last;
  };
  scene.live_until(6);
  CHECK(notice() ==
        "still waiting for 4 servers (0 of 4 servers: no primary; waiting for primaries 0, 1 and followers of 0, 1)");
  scene.hello("s0", Role::server);
  scene.hello("s1", Role::server);
  scene.hello("f1", Role::server, 3);
  for (const char* name : {"s0", "s1", "f1"}) scene.say(name, control::Ready{});
  scene.live_until(12);
  CHECK(notice() == "still waiting for 1 server (3 of 4 servers: primaries 0, 1; waiting for followers of 0)");
  scene.live_until(30);
  CHECK(scene.failure().what() ==
        std::string("timed out after 30 s (--join-timeout) waiting for 1 server (3 of 4 servers: primaries 0, 1; "
                    "waiting for followers of 0)"));
}

TEST_CASE("where agents are missing, their roles are not counted as well") {
  Scene scene(plan(2, 2, 2));
  scene.hello("g", Role::agent);
  scene.live_until(30);
  CHECK(scene.failure().what() == std::string("timed out after 30 s (--join-timeout) waiting for 1 agent"));
}

TEST_CASE("who leaves too early is lost") {
  Scene scene(plan(2, 1));
  scene.start();
  SECTION("without being done") {
    scene.say("a", control::Report{});
    scene.say("a", control::Bye{});
  }
  SECTION("without a report") {
    scene.say("a", control::Done{});
    scene.say("a", control::Bye{});
  }
  CHECK_FALSE(scene.coordinator.result().failure);  // another may have been lost before
  scene.live_until(1, {"a"});
  CHECK_THAT(scene.failure().what(), Contains("worker 0 (host-a:1) left"));
  CHECK_FALSE(scene.has<control::Abort>("a"));
  CHECK(scene.has<control::Abort>("b"));
}
