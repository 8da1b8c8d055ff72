// A member's side of the control link as state machines: messages and time in, messages out.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_member.h>

using namespace psring;
using namespace psring::net;
using namespace std::chrono_literals;
using Verdict = CoordinatorWatch::Verdict;

namespace {

Moment at(Nanoseconds time) { return Moment{} + std::chrono::hours(1) + time; }

ControlOutbox::Bytes bytes(int value) { return {static_cast<std::byte>(value)}; }

std::vector<int> values(const std::vector<ControlOutbox::Bytes>& messages) {
  std::vector<int> taken;
  for (const auto& message : messages) taken.push_back(std::to_integer<int>(message.at(0)));
  return taken;
}

using Values = std::vector<int>;

/// A member that has joined as rank 1 of its role, at time 0.
struct Joined {
  explicit Joined(Role role, Nanoseconds patience = {})
      : member({.hello = {.role = role}, .endpoint = "host:1", .join_timeout = 30s, .patient = false}, at(0s)) {
    CHECK(names() == std::vector<std::string>{"hello"});
    CHECK(tell(control::Welcome{
        .rank = 1, .job = "{}", .heartbeat_interval = 1s, .heartbeat_timeout = 4s, .epoch = 0, .patience = patience}));
    CHECK(names() == std::vector<std::string>{"heartbeat"});
  }
  bool tell(const ControlMessage& message, Nanoseconds now = 0s) {
    return member.receive(encode_control(message), at(now));
  }
  /// The names of the messages that leave now.
  std::vector<std::string> names(Nanoseconds now = 0s) {
    std::vector<std::string> names;
    for (const auto& message : member.take_outgoing(at(now))) names.emplace_back(name_of(decode_control(message)));
    return names;
  }

  ControlMember member;
};

std::string error_of(const ControlMember& member) { return member.error() ? member.error()->what() : ""; }

}  // namespace

TEST_CASE("an outbox sends each message once while the connection lasts") {
  ControlOutbox outbox;
  outbox.send(bytes(1));
  outbox.send_standing(bytes(2));
  outbox.send_surely(bytes(3));
  CHECK(values(outbox.take()) == Values{1, 2, 3});
  CHECK(outbox.take().empty());
  outbox.close();
  outbox.send(bytes(4));
  CHECK(outbox.take().empty());
}

TEST_CASE("after a reconnect an outbox repeats standing and unacknowledged messages") {
  ControlOutbox outbox;
  outbox.send_surely(bytes(1));  // before the coordinator may be replaced: not kept
  outbox.repeat_unacknowledged();
  outbox.send_surely(bytes(2));
  outbox.send_standing(bytes(3));
  outbox.take();
  CHECK(outbox.next_heartbeat() == 1);
  CHECK(outbox.add_heartbeat() == 1);
  outbox.send_surely(bytes(4));
  CHECK(outbox.add_heartbeat() == 2);
  outbox.send(bytes(5));  // lost together with the connection
  CHECK_FALSE(outbox.acknowledged(1));
  SECTION("nothing was acknowledged") {
    outbox.reconnect(bytes(9), true);
    CHECK(values(outbox.take()) == Values{9, 3, 2, 4});
  }
  SECTION("the first heartbeat was acknowledged") {
    outbox.acknowledge(1);
    CHECK(outbox.acknowledged(1));
    outbox.reconnect(bytes(9), true);
    CHECK(values(outbox.take()) == Values{9, 3, 4});
  }
  SECTION("an answer may acknowledge several heartbeats, and comes at most once") {
    outbox.acknowledge(2);
    outbox.acknowledge(2);
    outbox.reconnect(bytes(9), false);
    CHECK(values(outbox.take()) == Values{9});
  }
  SECTION("standing messages end with the epoch") {
    outbox.end_epoch();
    outbox.reconnect(bytes(9), true);
    CHECK(values(outbox.take()) == Values{9, 2, 4});
  }
}

TEST_CASE("the shortest round trip gives the clock offset") {
  ClockOffset offset;
  CHECK(offset.value() == 0ns);
  offset.add(100ns, 1150ns, 200ns);  // answered at 150 of this clock
  CHECK(offset.value() == 1000ns);
  offset.add(300ns, 9000ns, 500ns);  // a longer way
  CHECK(offset.value() == 1000ns);
  offset.add(600ns, 1605ns, 610ns);
  CHECK(offset.value() == 1000ns);
  offset.add(700ns, 1712ns, 704ns);
  CHECK(offset.value() == 1010ns);
}

TEST_CASE("a clock offset within half of the round trip is taken as zero") {
  ClockOffset offset;
  offset.add(100ns, 101ns, 200ns);  // the answer left at once, and was late: 49 less than the middle
  CHECK(offset.value() == 0ns);
  offset.add(300ns, 300ns, 390ns);  // the ends of the round trip belong to it
  CHECK(offset.value() == 0ns);
  offset.add(400ns, 481ns, 481ns);
  CHECK(offset.value() == 0ns);
  offset.add(500ns, 571ns, 570ns);  // one clock cannot show this
  CHECK(offset.value() == 36ns);
  offset.add(600ns, 599ns, 660ns);
  CHECK(offset.value() == -31ns);
}

TEST_CASE("before it has joined, a member waits for the join timeout alone") {
  CoordinatorWatch watch(at(30s));
  CHECK(watch.next_deadline() == at(30s));
  CHECK_FALSE(watch.take_heartbeat(at(1s)));
  CHECK(watch.look(at(29s)) == Verdict::fine);
  CHECK(watch.look(at(30s)) == Verdict::not_joined);
}

TEST_CASE("a coordinator is silent after the timeout, unless this process stood still") {
  CoordinatorWatch watch(at(30s));
  watch.hear(at(0s));
  watch.join({.interval = 1s, .timeout = 4s, .patience = 0s}, at(0s));
  CHECK(watch.take_heartbeat(at(0s)));
  CHECK_FALSE(watch.take_heartbeat(at(0s)));
  CHECK(watch.next_deadline() == at(1s));
  watch.request_heartbeat();
  CHECK(watch.take_heartbeat(at(500ms)));
  watch.wake(at(3s), at(3s));
  CHECK(watch.look(at(3s)) == Verdict::fine);
  SECTION("silence") {
    watch.wake(at(4s), at(4s));
    CHECK(watch.look(at(4s)) == Verdict::silent);
    CHECK(watch.silent());
    CHECK(watch.silence(at(4s)) == 4s);
  }
  SECTION("the process slept for longer than planned") {
    watch.wake(at(4s), at(9s));
    CHECK(watch.look(at(9s)) == Verdict::fine);
    watch.wake(at(13s), at(13s));
    CHECK(watch.look(at(13s)) == Verdict::silent);
  }
  SECTION("the process stood still after it woke") {
    watch.wake(at(3s), at(3s));
    CHECK(watch.look(at(8s)) == Verdict::fine);
  }
}

TEST_CASE("the first heartbeats follow each other at once") {
  CoordinatorWatch watch(at(30s));
  watch.join({.interval = 1s, .timeout = 4s, .patience = 0s}, at(0s));
  int quick = 0;
  while (watch.take_heartbeat(at(0s)) && quick < 100) {
    ++quick;
    watch.hear_answer(at(0s));
  }
  CHECK(quick == 8);
}

TEST_CASE("a lost coordinator is waited for as long as the patience says") {
  CoordinatorWatch watch(at(30s));
  watch.hear(at(0s));
  watch.join({.interval = 1s, .timeout = 4s, .patience = 20s}, at(0s));
  watch.wake(at(2s), at(2s));
  watch.lose_connection(at(2s));
  watch.lose_connection(at(3s));  // the next connection is lost, too: the first counts
  CHECK(watch.away());
  CHECK_FALSE(watch.take_heartbeat(at(3s)));
  CHECK(watch.next_deadline() == at(4s));
  watch.wake(at(4s), at(4s));
  CHECK(watch.look(at(4s)) == Verdict::silent_away);
  CHECK(watch.look(at(4s)) == Verdict::fine);
  CHECK(watch.next_deadline() == at(22s));
  SECTION("it comes back") {
    CHECK(watch.hear(at(10s)));
    CHECK_FALSE(watch.silent());
    CHECK(watch.take_heartbeat(at(10s)));
  }
  SECTION("it does not") {
    watch.wake(at(22s), at(22s));
    CHECK(watch.look(at(22s)) == Verdict::did_not_return);
  }
}

TEST_CASE("errors name the member, and an agent's speak for the job") {
  Joined worker(Role::worker);
  Joined agent(Role::agent);
  for (Joined* joined : {&worker, &agent}) CHECK(joined->tell(control::Abort{ErrorKind::data, "no such file", 2, {}}));
  CHECK(error_of(worker.member) == "[worker] rank 1: the job has failed: no such file");
  CHECK(error_of(agent.member) == "no such file");
  CHECK(worker.member.interrupted().signal == 2);
  CHECK(worker.tell(control::Lost{{Role::worker, 0}, "later"}));
  CHECK(error_of(worker.member) == "[worker] rank 1: the job has failed: no such file");
}

TEST_CASE("bytes that only a member may send, or that are no message, lose the coordinator") {
  const bool decodes = GENERATE(true, false);
  Joined worker(Role::worker);
  if (decodes)
    CHECK(worker.tell(control::Bye{}));
  else
    CHECK(worker.member.receive(bytes(255), at(0s)));
  REQUIRE(worker.member.gone());
  CHECK(worker.member.gone()->kind() == ErrorKind::protocol);
  CHECK_THAT(error_of(worker.member), Catch::StartsWith("[worker] rank 1: the coordinator (host:1): "));
  worker.member.send(control::Progress{"late"});
  CHECK(worker.names(100ms).empty());
}

TEST_CASE("a status is dropped while the one before is in flight, unless it is the last") {
  using Names = std::vector<std::string>;
  Joined worker(Role::worker, 60s);
  const auto acknowledge = [&](std::uint64_t heartbeat) {
    worker.tell(control::HeartbeatAck{Nanoseconds{0}, heartbeat, Nanoseconds{0}});
  };
  std::uint64_t heartbeat = 1;
  for (acknowledge(heartbeat); worker.names() == Names{"heartbeat"}; acknowledge(heartbeat)) ++heartbeat;
  worker.member.status("{}", false);
  CHECK(worker.names() == Names{"status", "heartbeat"});
  acknowledge(heartbeat);  // the heartbeat that left before the status
  worker.member.status("{}", false);
  CHECK(worker.names().empty());
  SECTION("until a heartbeat that followed it is answered") {
    const std::uint64_t answered = heartbeat + GENERATE(1, 2);
    CHECK(worker.names(1s) == Names{"heartbeat"});
    acknowledge(answered);
    worker.member.status("{}", false);
    CHECK(worker.names() == Names{"status", "heartbeat"});
  }
  SECTION("the last status") {
    worker.member.status("{}", true);
    CHECK(worker.names() == Names{"status"});
  }
  SECTION("a new connection knows nothing of it, nor do its heartbeats") {
    CHECK(worker.member.lose_connection("closed", at(1s)));
    worker.member.reconnect();
    CHECK(worker.names(1s) == Names{"hello"});
    worker.member.status("{}", false);
    CHECK(worker.names(1s) == Names{"status"});
    worker.member.status("{}", false);
    CHECK(worker.names(1s).empty());
    acknowledge(heartbeat);
    CHECK(worker.names(1s) == Names{"heartbeat"});
  }
}

TEST_CASE("a member leaves its epoch when it is told to regroup, and enters the next") {
  Joined worker(Role::worker);
  worker.tell(control::Members{{}, 0, {Role::worker, 0}});
  CHECK(worker.member.members());
  CHECK_FALSE(worker.member.broken());
  worker.tell(control::Regroup{1, "worker 2 was lost"});
  CHECK(worker.member.broken());
  CHECK_FALSE(worker.member.error());
  CHECK_THROWS_WITH(worker.member.throw_if_broken(), "[worker] rank 0: worker 2 was lost");
  worker.member.enter_epoch();
  CHECK(worker.member.epoch() == 1);
  CHECK_FALSE(worker.member.broken());
  CHECK_FALSE(worker.member.members());
  // An agent lives through all epochs.
  Joined agent(Role::agent);
  agent.tell(control::Members{{}, 3, {Role::agent, 1}});
  CHECK(agent.member.epoch() == 3);
  CHECK_FALSE(agent.member.broken());
}

TEST_CASE("every coordinator of an epoch hears that a worker has resumed") {
  Joined worker(Role::worker, 60s);
  worker.member.resumed(57);
  CHECK(worker.names() == std::vector<std::string>{"resumed"});
  worker.tell(control::HeartbeatAck{Nanoseconds{0}, 1, Nanoseconds{0}});
  CHECK(worker.member.lose_connection("closed", at(1s)));
  worker.member.reconnect();
  CHECK(worker.names(1s) == std::vector<std::string>{"hello", "resumed"});
}

TEST_CASE("a paused worker answers at once, and tells every coordinator of the epoch") {
  Joined worker(Role::worker, 60s);
  CHECK(worker.member.ask({7}) == StepGate::Turn::go);
  CHECK_FALSE(worker.tell(control::Pause{5, 2}));  // another epoch
  CHECK(worker.names().empty());
  CHECK_FALSE(worker.tell(control::Pause{0, 2}));
  CHECK(worker.names() == std::vector<std::string>{"paused"});
  CHECK(worker.member.ask({8}) == StepGate::Turn::wait);
  CHECK(worker.member.lose_connection("closed", at(1s)));
  worker.member.reconnect();
  CHECK(worker.names(1s) == std::vector<std::string>{"hello", "paused"});
  worker.tell(control::StopBefore{0, 8}, 2s);
  CHECK(worker.member.ask({8}) == StepGate::Turn::stop);
  worker.member.done(8, true);
  CHECK(worker.member.interrupted().last == 8);
}

TEST_CASE("a lost connection ends the job, unless the coordinator may come back or is not needed") {
  SECTION("a coordinator that does not come back") {
    Joined worker(Role::worker);
    CHECK_FALSE(worker.member.lose_connection("the connection was closed", at(1s)));
    CHECK(error_of(worker.member) == "[worker] rank 1: the connection was closed");
  }
  SECTION("a job that has ended: a server still has to report") {
    for (const Role role : {Role::worker, Role::server}) {
      Joined member(role);
      member.tell(control::Finish{});
      CHECK_FALSE(member.member.lose_connection("closed", at(1s)));
      CHECK(member.member.gone());
      CHECK(member.member.error().has_value() == (role == Role::server));
    }
  }
  SECTION("before the member has joined") {
    for (const bool patient : {true, false}) {
      ControlMember member(
          {.hello = {.role = Role::server}, .endpoint = "host:1", .join_timeout = 3s, .patient = patient}, at(0s));
      CHECK(member.lose_connection("closed", at(1s)) == patient);
      CHECK(member.look(at(3s)).changed);
      CHECK(error_of(member) ==
            (patient ? "[server] --rdzv-endpoint host:1: no coordinator answered within 3 s" : "[server] closed"));
    }
  }
}

TEST_CASE("a silent coordinator is connected to again if it may come back") {
  const bool patient = GENERATE(true, false);
  Joined worker(Role::worker, patient ? Nanoseconds(20s) : Nanoseconds(0));
  worker.member.watch().wake(at(4s), at(4s));
  const ControlMember::Look look = worker.member.look(at(4s));
  CHECK(look.changed);
  CHECK(look.reconnect == patient);
  CHECK(error_of(worker.member) == (patient ? "" : "[worker] rank 1: nothing from the coordinator (host:1) for 4.0 s"));
}

TEST_CASE("a member that has to wait is told why, has its whole time again, and says so at the end") {
  ControlMember member({.hello = {.role = Role::server}, .endpoint = "host:1", .join_timeout = 30s, .patient = false},
                       at(0s));
  CHECK(member.receive(encode_control(control::Wait{"server 0 has joined already"}), at(20s)));
  CHECK(member.take_reason_to_wait() == "server 0 has joined already");
  CHECK_FALSE(member.take_reason_to_wait());
  member.watch().wake(at(30s), at(30s));
  CHECK_FALSE(member.look(at(30s)).changed);
  member.watch().wake(at(50s), at(50s));
  CHECK(member.look(at(50s)).changed);
  CHECK_THAT(error_of(member),
             Catch::Contains("may still not join after 30 s (--join-timeout): server 0 has joined already"));
}
