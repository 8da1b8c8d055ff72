#include <algorithm>
#include <map>
#include <set>
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

TEST_CASE("members get ranks in order of arrival, or as they ask") {
  Scene scene(plan(3, 2));
  scene.hello("a", Role::worker, 1);
  scene.hello("b", Role::worker);
  scene.hello("c", Role::worker);
  scene.hello("s", Role::server);
  CHECK(scene.got<control::Welcome>("a").rank == 1);
  CHECK(scene.got<control::Welcome>("b").rank == 0);
  CHECK(scene.got<control::Welcome>("c").rank == 2);
  CHECK(scene.got<control::Welcome>("s").rank == 0);
  CHECK(scene.got<control::Welcome>("a").job == "{\"lr\": 0.1}");
}

TEST_CASE("an agent of another host that is quicker does not take the launcher's rank") {
  JobPlan job = plan(2, 0, 2);
  job.reserve_agent_0 = true;
  Scene scene(job);
  scene.hello("other", Role::agent);
  scene.hello("third", Role::agent);
  scene.hello("launcher", Role::agent, 0);
  CHECK(scene.got<control::Welcome>("other").rank == 1);
  CHECK_THAT(scene.got<control::Refused>("third").text, Contains("all 2 agents"));
  CHECK(scene.got<control::Welcome>("launcher").rank == 0);
}

TEST_CASE("an agent that stays is not refused by the job that has ended") {
  for (const bool more : {false, true}) {
    JobPlan job = plan(1, 0, 2);
    job.more = more;
    Scene scene(job);
    scene.hello("a", Role::agent);
    CHECK(scene.got<control::Welcome>("a").more == more);
    scene.keep(scene.coordinator.abort(Error(ErrorKind::data, "not finite"), at(0)));
    CHECK(scene.has<control::Abort>("a"));
    scene.hello("again", Role::agent);
    CHECK(scene.has<control::Refused>("again") != more);
  }
}

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

TEST_CASE("a job without roles ends well once all of its agents have joined") {
  Scene scene(plan(0, 0, 2));
  scene.hello("a", Role::agent);
  CHECK_FALSE(scene.has<control::Finish>("a"));
  scene.hello("b", Role::agent);
  CHECK(scene.has<control::Finish>("a"));
  CHECK(scene.has<control::Finish>("b"));
  for (const char* name : {"a", "b"}) scene.say(name, control::Bye{});
  CHECK(scene.coordinator.ended());
  CHECK_FALSE(scene.coordinator.result().failure);
  CHECK_THROWS(Scene(plan(0, 0)));
  CHECK_THROWS(Scene(plan(0, 1, 2)));
}

TEST_CASE("a surplus, a rank that is taken and one that does not exist are refused, and the job goes on") {
  Scene scene(plan(2, 1));
  scene.hello("a", Role::worker, 1);
  scene.hello("x", Role::worker, 1);
  CHECK_THAT(scene.got<control::Refused>("x").text,
             Contains("worker 1 (host-a:1), last heard 0.0 s ago, has joined already") && Contains("--rank"));
  scene.hello("y", Role::worker, 2);
  CHECK_THAT(scene.got<control::Refused>("y").text, Contains("2 workers"));
  scene.hello("b", Role::worker);
  scene.hello("z", Role::worker);
  CHECK_THAT(scene.got<control::Refused>("z").text, Contains("all 2 workers"));
  CHECK(scene.got<control::Refused>("z").kind == ErrorKind::usage);
  scene.hello("g", Role::agent);
  CHECK(scene.has<control::Refused>("g"));
  scene.hello("k", Role::coordinator);
  CHECK(scene.has<control::Refused>("k"));
  CHECK_FALSE(scene.coordinator.result().failure);
}

TEST_CASE("workers with different processors are told of once, servers' processors do not matter") {
  const auto notices = [](const std::string& a, const std::string& b, const std::string& server) {
    Scene scene(plan(2, 1));
    const auto join = [&](const std::string& name, Role role, const std::string& processor) {
      scene.say(name, control::Hello{.role = role, .hostname = "host-" + name, .pid = 1, .processor = processor});
    };
    join("a", Role::worker, a);
    join("b", Role::worker, b);
    join("s", Role::server, server);
    for (const char* name : {"a", "b", "s"}) scene.say(name, control::Ready{{{"tcp", "address"}}});
    REQUIRE(scene.has<control::Members>("a"));
    std::vector<std::string> texts;
    for (const auto& event : scene.events)
      if (const auto* notice = std::get_if<control::Notice>(&event.what)) texts.push_back(notice->text);
    return texts;
  };
  CHECK(notices("wide", "wide", "").empty());
  const std::vector<std::string> mixed = notices("wide", "narrow", "");
  REQUIRE(mixed.size() == 1);
  CHECK_THAT(mixed[0], Contains("worker 0 (host-a:1) has wide") && Contains("worker 1 (host-b:1) has narrow"));
}

TEST_CASE("roles are cut evenly over agents, in order") {
  const JobPlan p = plan(5, 2, 3);
  CHECK(roles_of_agent(p, 0) == std::vector<Peer>{{Role::server, 0}, {Role::worker, 0}, {Role::worker, 1}});
  CHECK(roles_of_agent(p, 1) == std::vector<Peer>{{Role::server, 1}, {Role::worker, 2}, {Role::worker, 3}});
  CHECK(roles_of_agent(p, 2) == std::vector<Peer>{{Role::worker, 4}});
  Scene scene(p);
  scene.hello("late", Role::agent, 0);
  CHECK(scene.got<control::StartRoles>("late").roles == roles_of_agent(p, 0));
}

TEST_CASE("colocated: agents start workers alone, and a server has exited with its worker") {
  JobPlan p = plan(3, 2, 2);
  p.colocated = 2;
  CHECK(roles_of_agent(p, 0) == std::vector<Peer>{{Role::worker, 0}, {Role::worker, 1}});
  CHECK(roles_of_agent(p, 1) == std::vector<Peer>{{Role::worker, 2}});
  p = plan(1, 1, 1);
  p.colocated = 1;
  Scene scene(p);
  scene.hello("agent", Role::agent);
  scene.hello("w", Role::worker);
  scene.hello("s", Role::server, 0);
  for (const char* name : {"w", "s"}) scene.say(name, control::Ready{});
  scene.say("w", control::Report{"{}"});
  scene.say("w", control::Done{});
  scene.say("w", control::Bye{});
  CHECK(scene.has<control::Finish>("s"));
  scene.say("s", control::Report{"{}"});
  scene.say("s", control::Bye{});
  CHECK_FALSE(scene.has<control::Finish>("agent"));
  scene.say("agent", control::RoleExited{{Role::worker, 0}, 0, 0, ""});
  CHECK(scene.has<control::Finish>("agent"));
  CHECK_FALSE(scene.coordinator.result().failure);
}

TEST_CASE("mixed: standalone servers have the first ranks, and a process without a rank gets one of these") {
  JobPlan p = plan(2, 3, 2);
  p.colocated = 2;
  CHECK(roles_of_agent(p, 0) == std::vector<Peer>{{Role::server, 0}, {Role::worker, 0}});
  CHECK(roles_of_agent(p, 1) == std::vector<Peer>{{Role::worker, 1}});
  CHECK(p.process_of({Role::server, 0}) == Peer{Role::server, 0});
  CHECK(p.process_of({Role::server, 2}) == Peer{Role::worker, 1});
  CHECK(p.process_of({Role::worker, 1}) == Peer{Role::worker, 1});
  CHECK(p.guest_of({Role::worker, 1}) == Peer{Role::server, 2});
  CHECK_FALSE(p.guest_of({Role::server, 1}));
  p.agents = 0;
  Scene scene(p);
  scene.hello("s", Role::server);
  CHECK(scene.got<control::Welcome>("s").rank == 0);
  scene.hello("more", Role::server);
  CHECK_THAT(scene.got<control::Refused>("more").text, Contains("the only standalone server has joined already"));
  scene.hello("guest", Role::server, 2);
  CHECK(scene.got<control::Welcome>("guest").rank == 2);
}

TEST_CASE("nothing is published before all are ready, then all get the same list") {
  Scene scene(plan(2, 1));
  scene.hello("a", Role::worker);
  scene.hello("b", Role::worker);
  scene.say("a", control::Ready{});
  scene.say("b", control::Ready{});
  CHECK_FALSE(scene.has<control::Members>("a"));
  scene.hello("s", Role::server);
  CHECK_FALSE(scene.has<control::Members>("a"));
  scene.say("s", control::Ready{{{"tcp", "10.0.0.2:7"}}});
  for (const char* name : {"a", "b", "s"}) {
    const auto list = scene.got<control::Members>(name).members;
    REQUIRE(list.size() == 3);
    CHECK(list[0].peer == Peer{Role::worker, 0});
    CHECK(list[1].hostname == "host-b");
    CHECK(list[2].addresses.at("tcp") == "10.0.0.2:7");
  }
}

TEST_CASE("who does not join in time is named") {
  Scene scene(plan(2, 2));
  scene.hello("a", Role::worker);
  scene.say("a", control::Ready{});
  scene.live_until(29.5);
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.live_until(30);
  CHECK(scene.failure().kind() == ErrorKind::timeout);
  CHECK(scene.failure().what() ==
        std::string("timed out after 30 s (--join-timeout) waiting for 1 worker and 2 servers"));
  CHECK(scene.got<control::Abort>("a").kind == ErrorKind::timeout);
  scene.hello("late", Role::worker);
  CHECK_THAT(scene.got<control::Refused>("late").text, Contains("the job has failed: timed out"));
  CHECK_FALSE(scene.coordinator.ended());
  scene.say("a", control::Bye{});
  CHECK(scene.coordinator.ended());
  CHECK(scene.coordinator.result().status() == 4);
}

TEST_CASE("who joins but does not get ready is named too") {
  Scene scene(plan(1, 1));
  scene.hello("a", Role::worker);
  scene.hello("s", Role::server);
  scene.say("a", control::Ready{});
  scene.live_until(30);
  CHECK_THAT(scene.failure().what(), Contains("waiting for server 0 (host-s:1) to be ready"));
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

TEST_CASE("a job of roles started by hand runs to its end") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("a", control::Report{"{\"a\": 1}"});
  scene.say("a", control::Done{});
  CHECK_FALSE(scene.has<control::Finish>("s"));
  scene.say("a", control::Bye{});  // may leave: it has done all it had to
  scene.say("b", control::Done{});
  CHECK(scene.has<control::Finish>("s"));
  CHECK_FALSE(scene.has<control::Finish>("b"));
  scene.say("s", control::Report{"{\"s\": 1}"});
  CHECK_FALSE(scene.has<control::Finish>("b"));
  scene.say("b", control::Report{"{}"});
  CHECK(scene.has<control::Finish>("b"));
  CHECK_FALSE(scene.has<control::Finish>("a"));  // has gone
  scene.say("b", control::Bye{});
  CHECK_FALSE(scene.coordinator.ended());
  scene.say("s", control::Bye{});
  CHECK(scene.coordinator.ended());
  CHECK(scene.coordinator.result().status() == 0);
  CHECK(scene.coordinator.result().reports.at({Role::worker, 0}) == "{\"a\": 1}");
  CHECK(scene.coordinator.result().reports.size() == 3);
}

TEST_CASE("a job of agents ends when their roles have exited") {
  Scene scene(plan(1, 1, 1));
  scene.hello("g", Role::agent);
  scene.hello("a", Role::worker, 0);
  scene.hello("s", Role::server, 0);
  scene.say("a", control::Ready{});
  scene.say("s", control::Ready{});
  scene.say("a", control::Report{});
  scene.say("a", control::Done{});
  scene.say("s", control::Report{});
  scene.say("a", control::Bye{});
  scene.say("s", control::Bye{});
  CHECK_FALSE(scene.has<control::Finish>("g"));
  scene.say("g", control::RoleExited{{Role::worker, 0}, 0, 0, ""});
  SECTION("well") {
    scene.say("g", control::RoleExited{{Role::server, 0}, 0, 0, ""});
    CHECK(scene.has<control::Finish>("g"));
    CHECK_FALSE(scene.coordinator.ended());
    scene.say("g", control::Bye{});
    CHECK(scene.coordinator.ended());
    CHECK(scene.coordinator.result().status() == 0);
  }
  SECTION("or badly, though its work was done") {
    scene.say("g", control::RoleExited{{Role::server, 0}, 6, 0, "bytes differ"});
    CHECK(scene.failure().kind() == ErrorKind::check_failed);
    CHECK(scene.failure().what() == std::string("server 0 (host-s:1) exited with status 6: bytes differ"));
    CHECK(scene.got<control::Abort>("g").kind == ErrorKind::check_failed);
  }
  SECTION("or not at all") {
    scene.live_until(10, {"a", "s"});
    CHECK(scene.failure().kind() == ErrorKind::timeout);
    CHECK_THAT(scene.failure().what(), Contains("waiting for server 0 (host-s:1) to exit"));
  }
}

TEST_CASE("what an agent says of its roles") {
  Scene scene(plan(2, 0, 2));
  scene.hello("g", Role::agent, 0);
  scene.hello("h", Role::agent, 1);
  SECTION("a signal is a lost peer") {
    scene.hello("a", Role::worker, 0);
    scene.say("g", control::RoleExited{{Role::worker, 0}, 0, 9, ""});
    CHECK(scene.failure().kind() == ErrorKind::peer_lost);
    CHECK(scene.failure().what() == std::string("worker 0 (host-a:1) was ended by signal 9 (Killed)"));
  }
  SECTION("a role may fail before it joins") {
    scene.say("g", control::RoleExited{{Role::worker, 0}, 3, 0, "no data"});
    CHECK(scene.failure().what() == std::string("worker 0 exited with status 3: no data"));
  }
  SECTION("or leave without a word") {
    scene.say("g", control::RoleExited{{Role::worker, 0}, 0, 0, ""});
    CHECK(scene.failure().what() == std::string("worker 0 exited before it joined"));
  }
  SECTION("a clean exit waits for the role's own messages, but not for ever") {
    scene.hello("a", Role::worker, 0);
    scene.say("g", control::RoleExited{{Role::worker, 0}, 0, 0, ""});
    CHECK_FALSE(scene.coordinator.result().failure);
    scene.live_until(3, {"a"});
    CHECK(scene.failure().what() == std::string("worker 0 (host-a:1) exited before all had joined"));
  }
  SECTION("others' roles are not its own") {
    scene.say("g", control::RoleExited{{Role::worker, 1}, 3, 0, ""});
    CHECK(scene.failure().kind() == ErrorKind::protocol);
  }
  SECTION("an agent that is silent or leaves is lost") {
    scene.say("h", control::Bye{});
    CHECK_THAT(scene.failure().what(), Contains("agent 1 (host-h:1) left"));
    CHECK(scene.got<control::Lost>("g").peer == Peer{Role::agent, 1});
  }
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

TEST_CASE("members of another build are told of once, or refused") {
  JobPlan p = plan(3, 0);
  p.build = {"psring 1 (abc)", "1111"};
  const auto hello = [](Scene& scene, const std::string& name, const BuildId& build) {
    scene.say(name, control::Hello{.role = Role::worker, .hostname = "host-" + name, .pid = 1, .build = build});
  };
  SECTION("told of once") {
    Scene scene(p);
    hello(scene, "a", p.build);
    CHECK(scene.events.empty());
    hello(scene, "b", {"psring 2 (def)", "2222"});
    hello(scene, "c", {"psring 2 (def)", "2222"});
    CHECK(scene.has<control::Welcome>("c"));
    REQUIRE(scene.events.size() == 1);
    CHECK_THAT(std::get<control::Notice>(scene.events[0].what).text,
               Contains("warning: worker 1 (host-b:1)") && Contains("psring 2 (def), sources 2222") &&
                   Contains("psring 1 (abc), sources 1111") && Contains("--same-build"));
  }
  SECTION("refused with --same-build") {
    p.same_build = true;
    Scene scene(p);
    hello(scene, "a", p.build);
    hello(scene, "b", {"psring 1 (abc)", "2222"});
    CHECK(scene.has<control::Welcome>("a"));
    CHECK(scene.got<control::Refused>("b").kind == ErrorKind::data);
    CHECK_THAT(scene.got<control::Refused>("b").text, Contains("sources 2222") && Contains("sources 1111"));
    CHECK(scene.events.empty());
  }
  SECTION("refused if the data frames have another version") {
    Scene scene(p);
    scene.say("a", control::Hello{.role = Role::worker, .build = p.build, .wire = "7.5"});
    CHECK(scene.got<control::Refused>("a").kind == ErrorKind::data);
    CHECK_THAT(scene.got<control::Refused>("a").text,
               Contains("wire version 7.5") && Contains("wire version " + wire_version()));
  }
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

TEST_CASE("what is out of turn fails the job; what strangers say does not") {
  Scene scene(plan(2, 1));
  scene.say("x", control::Ready{});
  CHECK_THAT(scene.got<control::Refused>("x").text, Contains("'ready' before 'hello'"));
  scene.keep(scene.coordinator.receive_garbage("y", Error(ErrorKind::protocol, "noise"), at(0)));
  CHECK(scene.has<control::Refused>("y"));
  CHECK_FALSE(scene.coordinator.result().failure);
  scene.start();
  SECTION("hello twice") { scene.hello("a", Role::worker); }
  SECTION("ready twice") { scene.say("a", control::Ready{}); }
  SECTION("a server is done") { scene.say("s", control::Done{}); }
  SECTION("a worker says what the coordinator says") { scene.say("a", control::Abort{}); }
  SECTION("a worker plays the agent") { scene.say("a", control::RoleExited{{Role::worker, 1}, 3, 0, ""}); }
  SECTION("a file outside of the run folder") { scene.say("a", control::Append{"../x", {}}); }
  SECTION("garbage") { scene.keep(scene.coordinator.receive_garbage("a", Error(ErrorKind::protocol, "noise"), at(0))); }
  CHECK(scene.failure().kind() == ErrorKind::protocol);
  CHECK(scene.events.empty());
}

TEST_CASE("appends, reports and progress come out as events, heartbeats are answered with the clock") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("a", control::Append{"metrics.jsonl", {std::byte{'x'}}});
  scene.say("b", control::Progress{"50 %"});
  REQUIRE(scene.events.size() == 2);
  CHECK(scene.events[0].from == Peer{Role::worker, 0});
  CHECK(std::get<control::Append>(scene.events[0].what).file == "metrics.jsonl");
  CHECK(std::get<control::Progress>(scene.events[1].what).text == "50 %");
  scene.now = 1.5;
  scene.say("a", control::Heartbeat{Nanoseconds{42}, 7});
  const auto ack = scene.got<control::HeartbeatAck>("a");
  CHECK(ack.sent == Nanoseconds{42});
  CHECK(ack.mark == 7);
  CHECK(ack.clock == at(1.5).time_since_epoch());
}

TEST_CASE("abort by the caller, and plans that cannot work") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.keep(scene.coordinator.abort(Error(ErrorKind::data, "disk full"), at(1)));
  CHECK(scene.got<control::Abort>("a").text == "disk full");
  CHECK(scene.coordinator.result().status() == 3);
  CHECK_THROWS_AS(Coordinator(plan(0, 1), at(0)), Error);
  JobPlan p = plan(1, 0);
  p.heartbeat_timeout = p.heartbeat_interval;
  CHECK_THROWS_WITH(Coordinator(p, at(0)), Contains("--heartbeat-timeout"));
}
