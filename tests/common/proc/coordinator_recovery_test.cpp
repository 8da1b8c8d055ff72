#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/tests/support/coordinator_scene.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;
using Catch::Contains;
using Keepers = RecoveryPlan::Keepers;

namespace {

JobPlan recoverable(std::uint32_t workers, std::uint32_t servers, Keepers keepers, bool replicas = false) {
  JobPlan p = plan(workers, servers * (replicas ? 2 : 1), 1);
  p.replicas = replicas;
  p.recovery = {.max_restarts = 3,
                .keepers = keepers,
                .begin_anew =
                    [](std::uint32_t with) {
                      return RecoveryPlan::Anew{with == 2 ? "anew" : "anew with " + std::to_string(with), 40};
                    },
                .patience = std::chrono::seconds(30)};
  return p;
}

/// A job with one agent, "g": processes "w0" and "s0" and so on, each start of a place with another number.
struct Job : Scene {
  explicit Job(const JobPlan& p) : Scene(p), job_plan(p) {
    if (!p.recovery.is_second) hello("g", Role::agent, 0);
  }

  static std::string name_of(Peer place) {
    std::string name = place.role == Role::worker ? "w" : "s";
    return name.append(std::to_string(place.rank));
  }
  void join(Peer place, const std::string& name) {
    pids[name] = ++last_pid;
    say(name, control::Hello{place.role, place.rank, "h", "host", pids[name]});
  }
  void ready(const std::string& name, std::uint32_t epoch, std::uint64_t step = 0, bool has_state = false) {
    say(name, control::Ready{{{"tcp", "addr-" + name}}, epoch, step, has_state});
  }
  void start() {
    for (const Peer place : roles_of_agent(job_plan, 0)) {
      join(place, name_of(place));
      ready(name_of(place), 0);
    }
    REQUIRE(has<control::Members>("w0"));
    forget();
  }
  void kill(Peer place, const std::string& name) { say("g", control::RoleExited{place, 0, 9, "", pids[name]}); }
  void forget() {
    for (auto& [name, box] : boxes) box.clear();
  }
  std::vector<Peer> started() {
    std::vector<Peer> all;
    for (const auto& message : boxes["g"])
      if (const auto* start = std::get_if<control::StartRoles>(&message))
        all.insert(all.end(), start->roles.begin(), start->roles.end());
    return all;
  }
  std::string notices() {
    std::string text;
    for (const auto& message : boxes["g"])
      if (const auto* notice = std::get_if<control::Notice>(&message)) text += notice->text + "\n";
    return text;
  }

  const JobPlan job_plan;
  std::map<std::string, std::uint32_t> pids;
  std::uint32_t last_pid = 100;
};

constexpr Peer kWorker0{Role::worker, 0};
constexpr Peer kWorker1{Role::worker, 1};
constexpr Peer kServer0{Role::server, 0};
constexpr Peer kServer1{Role::server, 1};

}  // namespace

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

namespace {

JobPlan elastic(std::uint32_t min_workers, std::uint32_t workers, std::uint32_t servers, Keepers keepers,
                std::uint32_t max_restarts = 0) {
  JobPlan p = recoverable(workers, servers, keepers);
  p.recovery.max_restarts = max_restarts;
  p.recovery.min_workers = min_workers;
  return p;
}

constexpr Peer kWorker2{Role::worker, 2};

}  // namespace

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
