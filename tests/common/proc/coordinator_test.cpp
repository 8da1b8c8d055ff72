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

TEST_CASE("a job whose hosts hold different files does not begin") {
  const auto outcome = [](const Addresses& a, const Addresses& b) -> std::string {
    Scene scene(plan(2, 1));
    scene.hello("a", Role::worker);
    scene.hello("b", Role::worker);
    scene.hello("s", Role::server);
    scene.say("a", control::Ready{.addresses = {}, .files = a});
    scene.say("b", control::Ready{.addresses = {}, .files = b});
    scene.say("s", control::Ready{});
    if (scene.has<control::Members>("s")) return "begins";
    CHECK(scene.failure().kind() == ErrorKind::data);
    return scene.failure().what();
  };
  CHECK(outcome({}, {}) == "begins");
  CHECK(outcome({{"--data x", "9 samples"}}, {{"--data x", "9 samples"}}) == "begins");
  CHECK(
      outcome({{"--data x", "9 samples"}}, {{"--data x", "8 samples"}}) ==
      "--data x: the file differs between hosts: worker 0 (host-a:1) has 9 samples, worker 1 (host-b:1) has 8 samples");
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
