#include <condition_variable>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::net;
using Catch::Contains;

namespace {

const SystemClock kClock;

Moment in(double s) { return kClock.now() + from_seconds(s); }

/// The contents of a file; "" if it does not exist yet.
std::string text_of(const std::string& file) { return std::filesystem::exists(file) ? test::read_file(file) : ""; }

JobPlan plan(std::uint32_t workers, std::uint32_t servers, double timeout = 10) {
  JobPlan p;
  p.workers = workers;
  p.servers = servers;
  p.job = "{}";
  p.join_timeout = from_seconds(30);
  p.heartbeat_interval = from_seconds(0.05);
  p.heartbeat_timeout = from_seconds(timeout);
  p.leave_timeout = from_seconds(1);
  return p;
}

/// A coordinator on a thread; its result once the job has ended.
class Service {
 public:
  explicit Service(
      const JobPlan& p, std::function<void(Peer, const std::string&)> on_progress = [](Peer, const std::string&) {})
      : stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)),
        service_({.plan = p, .run_folder = folder.file("run"), .on_progress = std::move(on_progress)}, key, kClock),
        result_(std::async(std::launch::async, [this] {
          return service_.run({.fd = stop_.get(), .take = [this] { return take_signal(); }});
        })) {}
  ~Service() {
    if (result_.valid()) stop(), result_.wait();
  }

  const std::string& endpoint() const { return service_.endpoint(); }
  ControlLink::Options options(Role role, std::optional<std::uint32_t> rank = {}) const {
    return {.endpoint = endpoint(), .role = role, .rank = rank, .host_id = "here"};
  }
  std::unique_ptr<ControlLink> join(Role role, std::optional<std::uint32_t> rank = {}) const {
    return std::make_unique<ControlLink>(options(role, rank), key, kClock);
  }
  /// As two signals do: the job ends at once.
  void stop() { ::eventfd_write(stop_.get(), 2); }
  JobResult result() {
    REQUIRE(result_.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    return result_.get();
  }

  test::TemporaryFolder folder;
  const JobKey key = JobKey::generate();

 private:
  std::optional<int> take_signal() {
    eventfd_t count = 0;
    return ::eventfd_read(stop_.get(), &count) == 0 ? std::optional(SIGINT) : std::nullopt;
  }

  const Fd stop_;
  CoordinatorService service_;
  std::future<JobResult> result_;
};

/// Waits for a link to change until `holds`.
bool wait_for(ControlLink& link, const std::function<bool()>& holds) {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t news = 0;
  link.on_change([&] {
    const std::scoped_lock lock(mutex);
    ++news;
    changed.notify_all();
  });
  bool held = false;
  for (std::uint64_t seen = 0; !(held = holds());) {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return news != seen; })) break;
    seen = news;
  }
  link.on_change({});
  return held;
}

std::optional<Error> error_of(const ControlLink& link) {
  try {
    link.check();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::optional<Error> error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("a job from joining to its end: ranks, members, files, reports") {
  std::mutex mutex;
  std::string progress;
  Service service(plan(2, 1), [&](Peer from, const std::string& text) {
    const std::scoped_lock lock(mutex);
    progress += to_string(from) + " " + text;
  });
  auto a = service.join(Role::worker, 1);
  auto b = service.join(Role::worker);
  auto s = service.join(Role::server);
  CHECK(a->rank() == 1);
  CHECK(b->rank() == 0);
  CHECK(a->job() == "{}");
  for (auto* link : {&a, &b, &s}) (*link)->ready({{"tcp", fmt::format("x:{}", (*link)->rank())}});
  const auto members = b->members(in(30));
  REQUIRE(members.size() == 3);
  CHECK(members[1].peer == Peer{Role::worker, 1});
  CHECK(members[1].addresses.at("tcp") == "x:1");
  CHECK(members[1].pid == static_cast<std::uint32_t>(::getpid()));
  CHECK(members[2].host_id == "here");

  const std::string line = "{\"step\": 1}\n";
  const std::string large(2 * kMaxAppendBytes + 7, 'z');
  a->append("metrics.jsonl", bytes_of(line));
  a->append("traces/worker-1.json", bytes_of(large));
  a->append("metrics.jsonl", bytes_of(line));
  a->progress("half");
  a->flush(in(30));
  // Flushed: it is there now.
  CHECK(text_of(service.folder.file("run/metrics.jsonl")) == line + line);
  CHECK(text_of(service.folder.file("run/traces/worker-1.json")) == large);
  {
    const std::scoped_lock lock(mutex);
    CHECK(progress == "worker 1 half");
  }
  for (auto* link : {&a, &b}) {
    (*link)->report(fmt::format("{{\"rank\": {}}}", (*link)->rank()));
    (*link)->done();
  }
  REQUIRE(wait_for(*s, [&] { return s->finished(); }));
  CHECK_FALSE(a->finished());  // the server has not reported
  s->report("{}");
  REQUIRE(wait_for(*a, [&] { return a->finished(); }));
  a->await_finish();
  for (auto* link : {&a, &b, &s}) {
    CHECK_FALSE(error_of(**link));
    (*link)->flush(in(30));
    link->reset();
  }
  const JobResult result = service.result();
  CHECK(result.status() == 0);
  CHECK(result.reports.at({Role::worker, 1}) == "{\"rank\": 1}");
  CHECK(text_of(service.folder.file("run/reports/worker-1.json")) == "{\"rank\": 1}");
  CHECK(std::filesystem::exists(service.folder.file("run/reports/server-0.json")));
}

TEST_CASE("the clock's offset is zero within one host") {
  Service service(plan(1, 0));
  auto a = service.join(Role::worker);
  a->flush(in(30));
  CHECK(a->clock_offset() == Nanoseconds{});  // one clock, on any load
}

TEST_CASE("a failure reaches everybody with its cause") {
  Service service(plan(2, 1));
  auto a = service.join(Role::worker);
  auto b = service.join(Role::worker);
  auto s = service.join(Role::server);
  for (auto* link : {&a, &b, &s}) (*link)->ready({});
  a->members(in(30));
  b->fail(Error(ErrorKind::data, "no such file"));
  REQUIRE(wait_for(*s, [&] { return error_of(*s).has_value(); }));
  CHECK(error_of(*s)->kind() == ErrorKind::data);
  CHECK_THAT(error_of(*s)->what(), Contains("[server] rank 0: the job has failed: worker 1 ("));
  CHECK_THAT(error_of(*s)->what(), Contains("): no such file"));
  REQUIRE(wait_for(*a, [&] { return error_of(*a).has_value(); }));
  CHECK(error_of([&] { a->members(in(30)); })->kind() == ErrorKind::data);
  a->flush(in(30));  // an abort is no hindrance
  for (auto* link : {&a, &b, &s}) link->reset();
  CHECK(service.result().status() == 3);
}

TEST_CASE("a member that leaves is lost once the others are heard") {
  Service service(plan(2, 0));
  auto a = service.join(Role::worker);
  auto b = service.join(Role::worker);
  for (auto* link : {&a, &b}) (*link)->ready({});
  a->members(in(30));
  b.reset();
  REQUIRE(wait_for(*a, [&] { return error_of(*a).has_value(); }));
  CHECK(error_of(*a)->kind() == ErrorKind::peer_lost);
  CHECK_THAT(error_of(*a)->what(), Contains("[worker] rank 0: the job has failed: worker 1 ("));
  a.reset();
  CHECK(service.result().status() == 4);
}

TEST_CASE("a process that is stopped is lost within twice the timeout, and named") {
  Service service(plan(2, 0, 2));
  service.key.save(service.folder.file("job.key"));
  LocalCluster cluster(service.folder.path(), kClock);
  auto a = service.join(Role::worker, 0);
  a->ready({});
  const pid_t pid = cluster.start("worker-1", {CONTROL_ROLE, "role-worker", "--rdzv-endpoint", service.endpoint(),
                                               "--key", service.folder.file("job.key"), "--rank", "1"});
  a->members(in(30));
  const Moment stopped = kClock.now();
  ::kill(pid, SIGSTOP);
  REQUIRE(wait_for(*a, [&] { return error_of(*a).has_value(); }));
  CHECK(seconds(kClock.now() - stopped) < 2 * 2.0);
  CHECK(error_of(*a)->kind() == ErrorKind::peer_lost);
  CHECK_THAT(error_of(*a)->what(),
             Contains("[worker] rank 0: nothing from worker 1 (") && Contains(fmt::format(":{}) for 2.", pid)));
  a.reset();
  CHECK(service.result().status() == 4);
}

TEST_CASE("a silent coordinator is noticed") {
  test::TemporaryFolder folder;
  const JobKey key = JobKey::generate();
  key.save(folder.file("job.key"));
  LocalCluster cluster(folder.path(), kClock);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  const int inherited[] = {ends[1]};
  const pid_t pid =
      cluster.start("coordinator",
                    {CONTROL_ROLE, "coordinator", "--workers", "1", "--servers", "0", "--job", "", "--out",
                     folder.file("run"), "--key", folder.file("job.key"), "--endpoint-fd", std::to_string(ends[1])},
                    inherited);
  ::close(ends[1]);
  char endpoint[100] = {};
  REQUIRE(::read(read_end.get(), endpoint, sizeof endpoint) > 1);
  endpoint[std::string(endpoint).size() - 1] = '\0';
  ControlLink a({.endpoint = endpoint, .role = Role::worker, .rank = 0}, key, kClock);
  CHECK_FALSE(error_of(a));
  const auto what = GENERATE(SIGSTOP, SIGKILL);
  ::kill(pid, what);
  REQUIRE(wait_for(a, [&] { return error_of(a).has_value(); }));
  CHECK(error_of(a)->kind() == ErrorKind::peer_lost);
  CHECK_THAT(error_of(a)->what(), Contains(fmt::format("the coordinator ({})", endpoint)));
  CHECK_THAT(error_of(a)->what(), Contains(what == SIGSTOP ? "nothing from" : "closed the connection"));
  CHECK_THROWS_AS(a.flush(in(30)), Error);
}

TEST_CASE("another key is not let in, on either side") {
  Service service(plan(1, 0));
  const Moment start = kClock.now();
  const auto error = error_of([&] { ControlLink(service.options(Role::worker), JobKey::generate(), kClock); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::unauthorised);
  CHECK_THAT(error->what(), Contains("--rdzv-endpoint " + service.endpoint()) && Contains("--key"));
  CHECK(seconds(kClock.now() - start) < 20);
  // And the job is none the worse for it.
  auto a = service.join(Role::worker);
  a->ready({});
  CHECK(a->members(in(30)).size() == 1);
}

TEST_CASE("where no coordinator answers, the endpoint is named in time") {
  // Bound, but not listening: the port is nobody else's meanwhile.
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::string endpoint = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  ControlLink::Options options{.endpoint = endpoint, .role = Role::server, .join_timeout = from_seconds(0.3)};
  const bool listens = GENERATE(false, true);  // accepts, and says nothing
  if (listens) REQUIRE(::listen(socket.get(), 5) == 0);
  const auto error = error_of([&] { ControlLink(options, JobKey::generate(), kClock); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::timeout);
  CHECK(error->what() == fmt::format("[server] --rdzv-endpoint {}: no coordinator answered within 0.3 s", endpoint));
}

TEST_CASE("an endpoint that is none, an address that is taken, a refusal, an interruption") {
  Service service(plan(1, 0));
  ControlLink::Options options{.endpoint = "nonsense", .role = Role::worker};
  CHECK(error_of([&] { ControlLink(options, service.key, kClock); })->kind() == ErrorKind::usage);
  options.endpoint = "127.0.0.1:65536";
  CHECK_THAT(error_of([&] { ControlLink(options, service.key, kClock); })->what(),
             Contains("--rdzv-endpoint 127.0.0.1:65536") && Contains("1 to 65535"));
  const auto taken = error_of([&] {
    CoordinatorService({.plan = plan(1, 0), .listen = service.endpoint(), .run_folder = service.folder.path()},
                       service.key, kClock);
  });
  REQUIRE(taken);
  CHECK(taken->kind() == ErrorKind::usage);
  CHECK(taken->what() == fmt::format("--listen {}: Address already in use", service.endpoint()));
  auto a = service.join(Role::worker);
  const auto refused = error_of([&] { service.join(Role::worker); });
  REQUIRE(refused);
  CHECK_THAT(refused->what(), Contains("all 1 worker of the job have joined already"));
  const Fd stop(::eventfd(1, EFD_CLOEXEC));
  options = {.endpoint = "127.0.0.1:1", .role = Role::agent, .stop_fd = stop.get()};
  CHECK_THAT(error_of([&] { ControlLink(options, service.key, kClock); })->what(), Contains("interrupted"));
}

TEST_CASE("waits have deadlines; the service can be stopped") {
  Service service(plan(2, 0));
  auto a = service.join(Role::worker);
  a->ready({});
  const auto late = error_of([&] { a->members(in(0.05)); });
  REQUIRE(late);
  CHECK(late->kind() == ErrorKind::timeout);
  CHECK_THAT(late->what(), Contains("[worker] rank 0: timed out after 0."));
  service.stop();
  REQUIRE(wait_for(*a, [&] { return error_of(*a).has_value(); }));
  CHECK_THAT(error_of(*a)->what(), Contains("interrupted"));
  a.reset();
  CHECK(service.result().status() == 4);
}

TEST_CASE("a file that cannot be written fails the job, with its name") {
  Service service(plan(1, 0));
  std::filesystem::create_directories(service.folder.file("run/metrics.jsonl"));
  auto a = service.join(Role::worker);
  a->append("metrics.jsonl", bytes_of("x"));
  REQUIRE(wait_for(*a, [&] { return error_of(*a).has_value(); }));
  CHECK(error_of(*a)->kind() == ErrorKind::data);
  CHECK_THAT(error_of(*a)->what(), Contains("metrics.jsonl: Is a directory"));
}

TEST_CASE("links come and go under many threads") {
  Service service(plan(8, 0));
  std::vector<std::jthread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&service] {
      auto link = service.join(Role::worker);
      link->ready({});
      link->members(in(60));
      std::jthread other([&] {
        for (int n = 0; n < 50; ++n) link->append("metrics.jsonl", bytes_of("line\n")), link->check();
      });
      for (int n = 0; n < 5; ++n) link->flush(in(60));
      other.join();
      link->report("{}");
      link->done();
      link->flush(in(60));
    });
  threads.clear();
  CHECK(service.result().status() == 0);
  CHECK(text_of(service.folder.file("run/metrics.jsonl")).size() == 8 * 50 * 5);
}
