// A role without work, for the tests of rendezvous and process control: what it does stands in the job's text,
// such as "worker 1: exit 3". Started as an agent starts roles, or as a coordinator.
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <signal.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/common/proc/coordinator/coordinator_service.h>

using namespace psring;
using namespace psring::net;

namespace {

using Arguments = std::map<std::string, std::string>;

const SystemClock kClock;

Moment in(double s) { return kClock.now() + from_seconds(s); }

/// `psring coordinator` in small.
int coordinate(const Arguments& given) {
  CoordinatorService::Options options;
  options.plan.workers = static_cast<std::uint32_t>(std::stoul(given.at("--workers")));
  options.plan.servers = static_cast<std::uint32_t>(std::stoul(given.at("--servers")));
  options.plan.agents = 1;
  options.plan.job = given.at("--job");
  options.plan.heartbeat_interval = std::chrono::milliseconds(100);
  options.plan.heartbeat_timeout = std::chrono::seconds(2);
  options.run_folder = given.at("--out");
  if (given.contains("--listen")) options.listen = given.at("--listen");
  CoordinatorService service(options, JobKey::load(given.at("--key")), kClock);
  publish_endpoint(std::stoi(given.at("--endpoint-fd")), service.endpoint());
  return service.run().status();
}

/// Waits until check() throws or finished() holds.
void wait_for_finish(ControlLink& link) {
  std::mutex mutex;
  std::condition_variable changed;
  bool news = false;
  link.on_change([&] {
    const std::scoped_lock lock(mutex);
    news = true;
    changed.notify_one();
  });
  const auto is_over = [&] {
    try {
      link.check();
    } catch (const Error&) {
      return true;
    }
    return link.finished();
  };
  while (!is_over()) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return std::exchange(news, false); });
  }
  link.on_change({});
  link.check();
}

void behave(const std::string& how) {
  if (how == "kill") ::raise(SIGKILL);
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "exit 3") {
    std::cerr << "a line before\n[worker] bad data\n";
    ::_exit(3);  // as a crash would: the link's thread is still at work
  }
  if (how == "throw") fail(ErrorKind::check_failed, "bytes differ");
  if (how == "hang") ::pause();
}

int play(Role role, const Arguments& given) {
  ControlLink link({.endpoint = given.at("--rdzv-endpoint"),
                    .role = role,
                    .rank = static_cast<std::uint32_t>(std::stoul(given.at("--rank"))),
                    .host_id = "test"},
                   JobKey::load(given.at("--key")), kClock);
  try {
    link.ready({{"tcp", fmt::format("10.0.0.1:{}", link.rank())}});
    link.members(in(30));
    std::cout << "playing\n" << std::flush;
    const std::string me = fmt::format("{} {}: ", to_string(role), link.rank());
    const std::string& job = link.job();
    if (job.rfind(me, 0) == 0) behave(job.substr(me.size()));
    if (role == Role::server || !job.empty()) wait_for_finish(link);
    const std::string text = "{\"loss\": 1}\n";
    link.append("metrics.jsonl", std::as_bytes(std::span(text)));
    link.report("{}");
    if (role == Role::worker) link.done();
    link.flush(in(10));
    return 0;
  } catch (const Error& error) {
    link.fail(error);
    std::cerr << error.what() << '\n';
    return exit_status(error.kind());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  Arguments given;
  for (int i = 2; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  try {
    if (what == "coordinator") return coordinate(given);
    return play(what == "role-server" ? Role::server : Role::worker, given);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return exit_status(error.kind());
  }
}
