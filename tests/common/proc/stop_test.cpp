#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/idle_watch.h>
#include <psring/common/proc/stop.h>
#include <psring/tests/support/coordinator_scene.h>

using namespace psring;
using namespace psring::test;
using Catch::Contains;
using Turn = StepGate::Turn;

namespace {

constexpr int kInt = 2;
constexpr int kTerm = 15;

Peer worker(std::uint32_t rank) { return {Role::worker, rank}; }

}  // namespace

TEST_CASE("a worker that has paused finishes its step, and waits to be told where to end") {
  StepGate gate;
  CHECK(gate.ask({7}) == Turn::go);
  CHECK(gate.pause() == StopPoint{8, 0});
  CHECK(gate.ask({8}) == Turn::wait);
  gate.stop_at({10});
  CHECK(gate.ask({8}) == Turn::go);
  CHECK(gate.pause() == StopPoint{10});  // asked again, by a second coordinator: it has been told
  CHECK(gate.ask({9}) == Turn::go);
  CHECK(gate.ask({10, 5}) == Turn::go);  // the evaluation before it
  CHECK(gate.ask({10}) == Turn::stop);
  CHECK(gate.ask({12}) == Turn::stop);
}

TEST_CASE("a worker ends within an evaluation") {
  StepGate gate;
  CHECK(gate.ask({7}) == Turn::go);
  CHECK(gate.ask({8, 0}) == Turn::go);
  CHECK(gate.ask({8, 1}) == Turn::go);
  CHECK(gate.pause() == StopPoint{8, 2});
  CHECK(gate.ask({8, 2}) == Turn::wait);
  gate.stop_at({8, 3});
  CHECK(gate.ask({8, 2}) == Turn::go);
  CHECK(gate.ask({8, 3}) == Turn::stop);
  CHECK(gate.ask({8}) == Turn::stop);
}

TEST_CASE("a worker that has begun nothing keeps nobody from ending where they are") {
  StepGate gate;
  CHECK(gate.pause() == StopPoint{0, 0});
  CHECK(gate.ask({500}) == Turn::wait);  // --resume
  gate.stop_at({0, 0});
  CHECK(gate.ask({500}) == Turn::stop);
}

TEST_CASE("signals within a second of the first are one request") {
  using Request = StopRequests::Request;
  StopRequests requests;
  CHECK(requests.take(SIGTERM, at(5)) == Request::first);
  CHECK(requests.take(SIGTERM, at(5.002)) == Request::same);
  CHECK(requests.take(SIGTERM, at(5.9)) == Request::same);
  CHECK(requests.take(SIGTERM, at(6)) == Request::again);
  CHECK(requests.take(SIGTERM, at(6.002)) == Request::again);
}

TEST_CASE("SIGQUIT is a second request, also as the first signal") {
  using Request = StopRequests::Request;
  StopRequests requests;
  CHECK(requests.take(SIGQUIT, at(5)) == Request::again);
  CHECK(requests.take(SIGTERM, at(5.5)) == Request::same);
  CHECK(requests.take(SIGQUIT, at(5.6)) == Request::again);
  CHECK(requests.take(SIGTERM, at(6)) == Request::again);
}

/// Workers of a bsp job are asked at any moment; none may pass the point that comes out, and all have to reach it.
TEST_CASE("all workers end at the same point, which all can reach") {
  std::vector<StopPoint> points;  // of a job that evaluates in three pieces before every fourth step
  for (std::uint64_t step = 0; points.size() < 600; ++step) {
    for (std::uint64_t piece = 0; step > 0 && step % 4 == 0 && piece < 3; ++piece) points.push_back({step, piece});
    points.push_back({step});
  }
  const CounterRng rng({.seed = 11});
  std::uint64_t draw = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t count = 1 + rng.bits(draw++) % 4;
    const bool own_steps = rng.bits(draw++) % 4 == 0;
    std::vector<StepGate> gates(count);
    std::vector<std::size_t> next(count, 0);
    const auto may_go = [&](std::size_t w) {  // bsp: a step or piece ends once all have begun it
      return own_steps || std::all_of(next.begin(), next.end(), [&](std::size_t other) { return other >= next[w]; });
    };
    const auto move = [&](std::size_t w) {
      if (may_go(w) && gates[w].ask(points[next[w]]) == Turn::go) ++next[w];
    };
    for (std::uint64_t moves = rng.bits(draw++) % 40; moves > 0; --moves) move(rng.bits(draw++) % count);
    std::set<Peer> all;
    for (std::uint32_t w = 0; w < count; ++w) all.insert(worker(w));
    StopVote vote(all, own_steps);
    std::vector<std::size_t> order(count);
    for (std::size_t w = 0; w < count; ++w) order[w] = w;
    for (std::size_t w = count; w > 1; --w) std::swap(order[w - 1], order[rng.bits(draw++) % w]);
    for (const std::size_t w : order) {
      REQUIRE_FALSE(vote.complete());
      vote.answer(worker(static_cast<std::uint32_t>(w)), gates[w].pause());
      for (std::uint64_t moves = rng.bits(draw++) % 5; moves > 0; --moves) move(rng.bits(draw++) % count);
    }
    REQUIRE(vote.complete());
    const auto ends = vote.result();
    for (std::size_t w = 0; w < count; ++w) gates[w].stop_at(ends.at(worker(static_cast<std::uint32_t>(w))));
    for (int moves = 0; moves < 400; ++moves) move(static_cast<std::size_t>(moves) % count);
    for (std::size_t w = 0; w < count; ++w) {
      const StopPoint end = ends.at(worker(static_cast<std::uint32_t>(w)));
      REQUIRE(points[next[w]] >= end);
      REQUIRE((next[w] == 0 || points[next[w] - 1] < end));
      REQUIRE(gates[w].ask(points[next[w]]) == Turn::stop);
      if (!own_steps) REQUIRE(next[w] == next[0]);
    }
  }
}

TEST_CASE("an interrupted job ends as a job does, before the latest step that was told") {
  JobPlan p = plan(2, 1, 1);
  Scene scene(p);
  scene.hello("g", Role::agent);
  scene.start();
  scene.say("g", control::Interrupt{kTerm});
  for (const char* name : {"a", "b"}) CHECK(scene.got<control::Pause>(name).signal == kTerm);
  CHECK_FALSE(scene.has<control::Pause>("s"));
  scene.say("g", control::Interrupt{kInt});  // another process of the job got one, too
  scene.say("b", control::Paused{0, 967, kTerm});
  CHECK_FALSE(scene.has<control::StopBefore>("b"));
  scene.say("a", control::Paused{0, 968, kTerm});
  for (const char* name : {"a", "b"}) {
    CHECK(scene.got<control::StopBefore>(name).step == 968);
    scene.say(name, control::Report{"{}"});
    scene.say(name, control::Done{968, kTerm});
  }
  CHECK(scene.has<control::Finish>("s"));
  scene.say("s", control::Report{"{}"});
  for (const std::uint32_t rank : {0, 1}) scene.say("g", control::RoleExited{worker(rank)});
  scene.say("g", control::RoleExited{{Role::server, 0}});
  const auto told = scene.got<control::Finish>("g").interrupted;
  CHECK(told.signal == kTerm);
  CHECK(control::describe(told) == "at step 968");
  CHECK_FALSE(scene.coordinator.result().failure);
  CHECK(scene.coordinator.result().interrupted.last == 968);
}

TEST_CASE("under ssp and asp each worker ends before its own next step") {
  JobPlan p = plan(2, 1);
  p.own_steps = true;
  Scene scene(p);
  scene.start();
  scene.keep(scene.coordinator.interrupt(kInt, at(1)));
  scene.say("a", control::Paused{0, 40, kInt});
  scene.say("b", control::Paused{0, 10, kInt});
  CHECK(scene.got<control::StopBefore>("a").step == 40);
  CHECK(scene.got<control::StopBefore>("b").step == 10);
  scene.say("a", control::Done{40, kInt});
  scene.say("b", control::Done{10, kInt});
  scene.say("s", control::Report{"{}"});
  for (const char* name : {"a", "b"}) scene.say(name, control::Report{"{}"});
  CHECK(control::describe(scene.coordinator.result().interrupted) == "at steps 10 to 40");
}

TEST_CASE("a job that is interrupted at its end has not been") {
  Scene scene(plan(2, 1));
  scene.start();
  scene.say("a", control::Report{"{}"});
  scene.say("a", control::Done{50, 0});
  scene.say("a", control::Bye{});
  scene.events.clear();
  scene.say("b", control::Interrupt{kInt});
  REQUIRE(scene.events.size() == 1);
  CHECK(std::get<control::Notice>(scene.events[0].what).text == "SIGINT at worker 1 (host-b:1) ends the job");
  scene.say("b", control::Paused{0, 50, kInt});
  CHECK(scene.got<control::StopBefore>("b").step == 50);
}

TEST_CASE("before its first step, and where a member wants it, a job fails at once") {
  Scene scene(plan(2, 1));
  SECTION("while it is joined") {
    scene.hello("a", Role::worker);
    scene.say("a", control::Interrupt{kInt});
    CHECK_THAT(scene.failure().what(), Contains("interrupted before the first step"));
    CHECK(scene.got<control::Abort>("a").signal == kInt);
  }
  SECTION("as a member says") {
    scene.start();
    scene.say("s", control::Interrupt{kTerm, true});
    for (const char* name : {"a", "b", "s"}) CHECK(scene.got<control::Abort>(name).signal == kTerm);
  }
  SECTION("where a worker never asks whether it may begin a step") {
    scene.say("a", control::Hello{.role = Role::worker, .rank = 0, .pid = 1});
    scene.say("b", control::Hello{.role = Role::worker, .rank = 1, .pid = 2, .asks = false});
    scene.hello("s", Role::server);
    for (const char* name : {"a", "b", "s"}) scene.say(name, control::Ready{});
    scene.keep(scene.coordinator.interrupt(kTerm, at(1)));
    for (const char* name : {"a", "b", "s"}) CHECK(scene.got<control::Abort>(name).signal == kTerm);
    CHECK(scene.failure().what() == std::string("interrupted"));
    CHECK(scene.events.empty());
  }
  SECTION("at this process's second signal") {
    scene.start();
    scene.keep(scene.coordinator.interrupt(kInt, at(1)));
    CHECK_FALSE(scene.coordinator.result().failure);
    REQUIRE(scene.events.size() == 1);
    CHECK(std::get<control::Notice>(scene.events[0].what).text ==
          "SIGINT: the job ends after the step under way; once more ends it at once");
    scene.keep(scene.coordinator.interrupt(kTerm, at(1.005)));  // the same request: systemd sends two signals
    CHECK_FALSE(scene.coordinator.result().failure);
    scene.keep(scene.coordinator.interrupt(kTerm, at(2)));
    CHECK(scene.got<control::Abort>("a").signal == kTerm);
  }
  CHECK(scene.coordinator.result().interrupted.signal != 0);
}

TEST_CASE("a step that cannot end, because all only wait, ends with the first signal") {
  Scene s(plan(2, 1));
  s.start();
  const Nanoseconds timeout = plan(2, 1).heartbeat_timeout;
  const auto beat = [&](const std::string& name, Nanoseconds idle) { s.say(name, control::Heartbeat{{}, 0, idle}); };
  for (const char* name : {"a", "b", "s"}) beat(name, timeout);
  CHECK_FALSE(s.has<control::Abort>("a"));  // nobody wants it to end
  s.keep(s.coordinator.interrupt(kTerm, at(1)));
  beat("b", Nanoseconds(0));  // computes
  for (const char* name : {"a", "s"}) beat(name, timeout);
  CHECK_FALSE(s.has<control::Abort>("a"));
  beat("b", timeout - Nanoseconds(1));
  CHECK_FALSE(s.has<control::Abort>("a"));
  beat("b", timeout);
  const auto abort = s.got<control::Abort>("a");
  CHECK(abort.signal == kTerm);
  CHECK(abort.text.find("a step that cannot end") != std::string::npos);
  CHECK(s.coordinator.result().interrupted.signal == kTerm);
}

TEST_CASE("a member is idle while it asks in a wait and nothing arrives") {
  IdleWatch watch;
  const auto waits = [&](double from, double to) {
    for (double s = from; s <= to; s += 0.1) watch.wait(at(s));
  };
  CHECK(watch.idle(0, at(0)) == Nanoseconds(0));  // has not waited yet
  waits(1, 4);
  CHECK(watch.idle(0, at(4)) == std::chrono::seconds(3));
  CHECK(watch.idle(8, at(4)) == Nanoseconds(0));  // bytes arrived
  waits(4, 6);
  CHECK(watch.idle(8, at(6)) == std::chrono::seconds(2));
  CHECK(watch.idle(8, at(7)) == Nanoseconds(0));  // computes
  waits(8, 9);
  CHECK(watch.idle(8, at(9)) == std::chrono::seconds(1));
}

TEST_CASE("after a loss the survivors are asked again, in the new epoch") {
  JobPlan p = plan(2, 1, 1);
  p.recovery.max_restarts = 1;
  p.recovery.keepers = RecoveryPlan::Keepers::servers;
  Scene scene(p);
  scene.hello("g", Role::agent);
  for (const auto& [name, rank] : {std::pair("a", 0), std::pair("b", 1)})
    scene.say(name, control::Hello{Role::worker, static_cast<std::uint32_t>(rank), "h", name, 1});
  scene.say("s", control::Hello{Role::server, 0, "h", "s", 1});
  for (const char* name : {"a", "b", "s"}) scene.say(name, control::Ready{});
  scene.say("g", control::Interrupt{kInt});
  scene.say("a", control::Paused{0, 5, kInt});
  scene.say("g", control::RoleExited{worker(1), 0, 9, "", 1});
  scene.boxes["a"].clear();
  scene.say("a", control::Paused{0, 5, kInt});  // late: of the epoch that is over
  scene.say("c", control::Hello{Role::worker, 1, "h", "c", 2});
  scene.say("c", control::Ready{.addresses = {}, .epoch = 1});
  scene.say("a", control::Ready{.addresses = {}, .epoch = 1});
  scene.say("s", control::Ready{.addresses = {}, .epoch = 1, .step = 5, .has_state = true});
  for (const char* name : {"a", "c"}) {
    CHECK(scene.got<control::Pause>(name).epoch == 1);
    scene.say(name, control::Paused{1, 5, kInt});
  }
  for (const char* name : {"a", "c"}) CHECK(scene.got<control::StopBefore>(name).step == 5);
}
