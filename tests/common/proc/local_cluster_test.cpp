#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/key.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/common/proc/signal_watch.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using Catch::Contains;

namespace {

const SystemClock kClock;

Moment in(double s) { return kClock.now() + from_seconds(s); }

/// The contents of a file; "" if it does not exist yet.
std::string text_of(const std::string& file) { return std::filesystem::exists(file) ? test::read_file(file) : ""; }

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

/// Gone, or a zombie that somebody else has to reap.
bool is_gone(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string word;
  in >> word >> word >> word;
  return !in || word == "Z" || word == "X";
}

/// A pipe whose writing end a process inherits: its end of file shows that all who had it have gone.
struct LifeLine {
  LifeLine() {
    const int made = ::pipe2(ends, O_CLOEXEC);
    REQUIRE(made == 0);
  }
  ~LifeLine() { ::close(ends[0]), release(); }
  void release() {
    if (ends[1] >= 0) ::close(std::exchange(ends[1], -1));
  }
  bool cut_within(int milliseconds) {
    release();
    pollfd polled{ends[0], POLLIN, 0};
    char byte = 0;
    while (::poll(&polled, 1, milliseconds) == 1)
      if (::read(ends[0], &byte, 1) == 0) return true;
    return false;
  }
  int ends[2] = {-1, -1};
};

}  // namespace

TEST_CASE("exit statuses, signals, logs and last lines") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.file("logs"), kClock);
  cluster.start("good", shell("echo out; echo err >&2"));
  cluster.start("bad", shell("echo one >&2; echo two >&2; echo >&2; exit 3"));
  cluster.start("killed", shell("printf 'no newline' >&2; kill -9 $$"));
  std::map<std::string, ProcessExit> exits;
  while (auto exit = cluster.next_exit(in(60))) exits[exit->name] = *exit;
  REQUIRE(exits.size() == 3);
  CHECK(exits["good"].status == 0);
  CHECK(exits["good"].signal == 0);
  CHECK_THAT(text_of(folder.file("logs/good.log")), Contains("out\n") && Contains("err\n"));
  CHECK(exits["bad"].status == 3);
  CHECK(exits["bad"].last_line == "two");
  CHECK(text_of(folder.file("logs/bad.log")) == "one\ntwo\n\n");
  CHECK(exits["killed"].signal == SIGKILL);
  CHECK(exits["killed"].last_line == "no newline");
  CHECK(cluster.running() == 0);
}

TEST_CASE("much output neither blocks nor is lost") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  cluster.start("loud", shell("i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done"));
  const auto exit = cluster.next_exit(in(60));
  REQUIRE(exit);
  CHECK(exit->last_line == "line 19999");
  const std::string log = text_of(folder.file("loud.log"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 20000);
}

TEST_CASE("a program that cannot be executed is named") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  CHECK_THROWS_WITH(cluster.start("x", {"/no/such/program"}),
                    "x: cannot execute /no/such/program: No such file or directory");
  CHECK(cluster.running() == 0);
  CHECK_THROWS_AS(LocalCluster("/proc/nothing/here", kClock), Error);
}

TEST_CASE("waiting ends by its deadline and by what wakes it") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  CHECK_FALSE(cluster.next_exit(kNever));  // nobody to wait for
  cluster.start("sleeper", {"sleep", "1000"});
  CHECK_FALSE(cluster.next_exit(in(0.05)));
  const Fd wake(::eventfd(1, EFD_CLOEXEC));
  const int fds[] = {wake.get()};
  CHECK_FALSE(cluster.next_exit(in(60), fds));
  CHECK(cluster.running() == 1);
}

TEST_CASE("terminate_all asks first, and kills who does not listen, stopped ones too") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  LifeLine line;
  const int inherited[] = {line.ends[1]};
  // Each says that its trap is set by way of an own pipe, so that no SIGTERM comes before it.
  LifeLine ready;
  const std::string say = fmt::format("echo >&{}; ", ready.ends[1]);
  const int both[] = {line.ends[1], ready.ends[1]};
  cluster.start("polite", shell("trap 'exit 7' TERM; " + say + "while :; do sleep 0.01; done"), both);
  cluster.start("deaf", shell("trap '' TERM; " + say + "while :; do sleep 0.01; done"), both);
  const pid_t stopped = cluster.start("stopped", {"sleep", "1000"}, inherited);
  ::kill(stopped, SIGSTOP);
  char lines[2];
  for (std::size_t got = 0; got < 2;) {
    const ssize_t size = ::read(ready.ends[0], lines, 2 - got);
    REQUIRE(size > 0);
    got += static_cast<std::size_t>(size);
  }
  const Moment start = kClock.now();
  std::map<std::string, ProcessExit> exits;
  for (auto& exit : cluster.terminate_all(from_seconds(1))) exits[exit.name] = exit;
  CHECK(seconds(kClock.now() - start) < 20);
  CHECK(exits["polite"].status == 7);
  CHECK(exits["deaf"].signal == SIGKILL);
  CHECK(exits["stopped"].signal == SIGTERM);
  CHECK(cluster.running() == 0);
  CHECK(line.cut_within(10000));  // nobody is left, children of the shells neither
}

TEST_CASE("who stands still for too long is killed, and who goes on in time is not") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  const pid_t still = cluster.start("still", {"sleep", "60"});
  const pid_t briefly = cluster.start("briefly", {"sleep", "60"});
  cluster.kill_stopped(from_seconds(0.1));
  ::kill(still, SIGSTOP);
  ::kill(briefly, SIGSTOP);
  std::optional<ProcessExit> exit;
  for (const Moment late = in(30); !exit && kClock.now() < late;) {
    cluster.kill_stopped(from_seconds(0.1));
    ::kill(briefly, SIGCONT);
    exit = cluster.next_exit(in(0.01));
  }
  REQUIRE(exit);
  CHECK(exit->pid == still);
  CHECK(exit->signal == SIGKILL);
  CHECK_THAT(message_of(*exit), Catch::StartsWith("stood still for "));
  CHECK(cluster.running() == 1);
}

TEST_CASE("what a process leaves in its group goes with it") {
  const test::TemporaryFolder folder;
  LocalCluster cluster(folder.path(), kClock);
  LifeLine line;
  const int inherited[] = {line.ends[1]};
  cluster.start("parent", shell("sleep 1000 & exit 0"), inherited);
  const auto exit = cluster.next_exit(in(60));  // though its child holds the error pipe
  REQUIRE(exit);
  CHECK(exit->status == 0);
  CHECK(line.cut_within(10000));
}

TEST_CASE("nothing is left when the cluster goes, nor when the launcher is killed") {
  const test::TemporaryFolder folder;
  LifeLine line;
  const int inherited[] = {line.ends[1]};
  SECTION("the cluster") {
    pid_t pid = 0;
    {
      LocalCluster cluster(folder.path(), kClock);
      pid = cluster.start("sleeper", {"sleep", "1000"}, inherited);
      CHECK_FALSE(is_gone(pid));
    }
    CHECK(is_gone(pid));
  }
  SECTION("the launcher") {
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      LocalCluster cluster(folder.path(), kClock);
      cluster.start("sleeper", {"sleep", "1000"}, inherited);
      cluster.start("other", {"sleep", "1000"}, inherited);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(launcher, &status, 0) == launcher);
    CHECK(WIFSIGNALED(status));
  }
  CHECK(line.cut_within(10000));
}

TEST_CASE("a launcher that dies while it starts processes leaves none") {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 20; ++i) {
    LifeLine line;
    const int inherited[] = {line.ends[1]};
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDERR_FILENO);
      LocalCluster cluster(folder.path(), kClock);
      for (int n = 0;; ++n) cluster.start(fmt::format("s{}", n % 4), {"sleep", "1000"}, inherited);
    }
    // Any moment will do: the first log shows that it is at it.
    while (std::filesystem::is_empty(folder.path())) std::this_thread::yield();
    ::kill(launcher, SIGKILL);
    REQUIRE(::waitpid(launcher, nullptr, 0) == launcher);
    CHECK(line.cut_within(10000));
  }
}

TEST_CASE("signals become readable, and get their effect back") {
  {
    SignalWatch watch;
    CHECK_FALSE(watch.take());
    ::kill(::getpid(), SIGINT);
    pollfd polled{watch.fd(), POLLIN, 0};
    CHECK(::poll(&polled, 1, 10000) == 1);
    CHECK(watch.take() == SIGINT);
    CHECK_FALSE(watch.take());
    for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1}) {
      ::kill(::getpid(), signal);
      polled.revents = 0;
      CHECK(::poll(&polled, 1, 10000) == 1);
      CHECK(watch.take() == signal);
    }
    ::kill(::getpid(), SIGTERM);  // still unread at the end: must not end us
  }
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  CHECK(::sigismember(&mask, SIGINT) == 0);
}

namespace {

/// Runs `body` in a process of its own, and returns its status as waitpid gives it.
int status_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

/// Raises a signal, and gives it time to end the process.
void raise_and_wait(int signal) {
  ::kill(::getpid(), signal);
  ::poll(nullptr, 0, 60000);
}

}  // namespace

TEST_CASE("a signal ends a process that has nothing to end in order, and one whose job has ended") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    const auto before_a_job = [&] {
      SignalWatch watch(SignalWatch::Effect::ends_process);
      raise_and_wait(signal);
    };
    const auto after_a_job = [&] {
      SignalWatch watch;
      ::kill(::getpid(), SIGTERM);  // came too late
      watch.end();
      raise_and_wait(signal);
    };
    for (const std::function<void()>& body :
         {std::function<void()>(before_a_job), std::function<void()>(after_a_job)}) {
      const int status = status_of(body);
      CHECK(WIFSIGNALED(status));
      CHECK(WTERMSIG(status) == signal);
      CHECK_FALSE(WCOREDUMP(status));
    }
  }
}

TEST_CASE("a process whose loop does not come round ends 4 s after the second request") {
  const Moment start = kClock.now();
  const int status = status_of([] {
    SignalWatch watch;
    raise_and_wait(SIGQUIT);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGQUIT);
  CHECK(kClock.now() - start >= std::chrono::seconds(4));
}

TEST_CASE("the reader's end is no reason to end a program whose job has ended") {
  CHECK(status_of([] {
          SignalWatch watch;
          watch.end();
          ::kill(::getpid(), SIGPIPE);
          ::poll(nullptr, 0, 100);  // in which the signal would have ended the process
        }) == 0);
}

namespace {

/// `psring train` in small: a coordinator process, and the agent of this host.
struct Launch {
  explicit Launch(std::string job_text, int workers = 2, int servers = 1) : job(std::move(job_text)) {
    net::JobKey::generate().save(key);
    endpoint = start_coordinator(coordinator,
                                 {CONTROL_ROLE, "coordinator", "--workers", std::to_string(workers), "--servers",
                                  std::to_string(servers), "--job", job, "--out", folder.file("run"), "--key", key},
                                 in(60), kClock);
  }
  AgentResult agent(
      SignalWatch& signals, std::vector<std::string> command = {CONTROL_ROLE},
      std::function<void(const std::string&)> on_notice = [](const std::string&) {}) {
    return run_agent({.endpoint = endpoint,
                      .key_file = key,
                      .command = std::move(command),
                      .log_folder = folder.file("logs"),
                      .host_id = "here",
                      .rank = 0,
                      .on_notice = std::move(on_notice)},
                     signals, kClock);
  }
  /// The coordinator's own exit status.
  int coordinator_status() {
    const auto exit = coordinator.next_exit(in(60));
    REQUIRE(exit);
    return exit->status;
  }

  const test::TemporaryFolder folder;
  const std::string key = folder.file("job.key");
  const std::string job;
  LocalCluster coordinator{folder.file("logs"), kClock};
  std::string endpoint;
};

}  // namespace

TEST_CASE("a job over agent and coordinator ends well") {
  SignalWatch signals;
  Launch launch("");
  const AgentResult result = launch.agent(signals);
  CHECK(result.cause.empty());
  CHECK(result.status == 0);
  CHECK(launch.coordinator_status() == 0);
  CHECK(text_of(launch.folder.file("run/metrics.jsonl")) == "{\"loss\": 1}\n{\"loss\": 1}\n{\"loss\": 1}\n");
  for (const char* role : {"worker-0", "worker-1", "server-0"}) {
    CHECK(text_of(launch.folder.file(fmt::format("logs/{}.log", role))) == "playing\n");
    CHECK(std::filesystem::exists(launch.folder.file(fmt::format("run/reports/{}.json", role))));
  }
}

TEST_CASE("whatever happens to a role is one cause, and one status for all") {
  struct Case {
    const char* job;
    int status;
    const char* cause;
  };
  const auto [job, status, cause] = GENERATE(
      Case{"worker 1: exit 3", 3, "exited with status 3: [worker] bad data"},
      Case{"worker 0: throw", 6, "bytes differ"}, Case{"worker 1: kill", 4, "was ended by signal 9 (Killed)"},
      Case{"server 0: kill", 4, "was ended by signal 9 (Killed)"}, Case{"worker 1: stop", 4, "nothing from worker 1"});
  SignalWatch signals;
  Launch launch(job);
  const Moment start = kClock.now();
  const AgentResult result = launch.agent(signals);
  INFO(job);
  CHECK(result.status == status);
  CHECK_THAT(result.cause, Contains(cause) && Contains(std::string(job).substr(0, 8)));
  CHECK(std::count(result.cause.begin(), result.cause.end(), '\n') == 0);
  CHECK(launch.coordinator_status() == status);
  CHECK(seconds(kClock.now() - start) < 30);
}

TEST_CASE("a second Ctrl-C ends the whole job with 130") {
  std::atomic<bool> told = false;  // that the first has been taken
  SignalWatch signals;
  Launch launch("worker 1: hang");
  const pid_t self = ::getpid();
  // Once the hanging worker plays, its log says so: then comes the signal.
  std::jthread user([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && text_of(launch.folder.file("logs/worker-1.log")).empty())
      std::this_thread::yield();
    ::kill(self, SIGINT);  // its roles make no steps, and so do not end
    while (!stop.stop_requested() && !told) std::this_thread::yield();
    while (!stop.stop_requested()) {  // those within a second of the first are no second request
      ::kill(self, SIGINT);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const AgentResult result = launch.agent(signals, {CONTROL_ROLE}, [&](const std::string&) { told = true; });
  CHECK(result.status == 130);
  CHECK(result.cause == "interrupted");
  CHECK(launch.coordinator_status() == 4);
}

TEST_CASE("an agent that cannot start its roles says why, and the job ends") {
  SignalWatch signals;
  Launch launch("");
  const AgentResult result = launch.agent(signals, {"/no/such/program"});
  CHECK(result.status == 3);
  CHECK_THAT(result.cause, Contains("cannot execute /no/such/program"));
  CHECK(launch.coordinator_status() == 3);
}

TEST_CASE("an agent without a coordinator, or with another key, says so") {
  SignalWatch signals;
  Launch launch("");
  const std::string other = launch.folder.file("other.key");
  net::JobKey::generate().save(other);
  AgentOptions options{
      .endpoint = launch.endpoint, .key_file = other, .command = {CONTROL_ROLE}, .log_folder = launch.folder.path()};
  CHECK(run_agent(options, signals, kClock).status == 5);
  options.key_file = launch.folder.file("none.key");
  CHECK(run_agent(options, signals, kClock).status == 3);
  options.key_file = other;
  options.endpoint = "127.0.0.1:1";
  options.join_timeout = from_seconds(0.2);
  CHECK_THAT(run_agent(options, signals, kClock).cause, Contains("no coordinator answered"));
  options.join_timeout = from_seconds(60);
  ::kill(::getpid(), SIGINT);  // to the process, as a terminal does
  CHECK(run_agent(options, signals, kClock).status == 130);
}

TEST_CASE("a coordinator that cannot start gives its own reason") {
  Launch launch("");
  LocalCluster cluster(launch.folder.path(), kClock);
  const auto start = [&] {
    start_coordinator(cluster,
                      {CONTROL_ROLE, "coordinator", "--workers", "1", "--servers", "0", "--job", "", "--out",
                       launch.folder.file("b"), "--key", launch.key, "--listen", launch.endpoint},
                      in(60), kClock);
  };
  CHECK_THROWS_WITH(start(), "--listen " + launch.endpoint + ": Address already in use");
  CHECK_THROWS_WITH(start_coordinator(cluster, shell("exec sleep 1000 \"$@\""), in(0.1), kClock), Contains("in time"));
  CHECK_THROWS_WITH(start_coordinator(cluster, shell("kill -9 $$"), in(60), kClock), Contains("signal 9"));
}
