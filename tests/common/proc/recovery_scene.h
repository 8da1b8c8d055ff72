#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <psring/tests/support/coordinator_scene.h>

// Jobs that lose members: their plans, and their processes as the coordinator hears of them.
namespace psring::test {

using Keepers = RecoveryPlan::Keepers;

inline constexpr Peer kWorker0{Role::worker, 0};
inline constexpr Peer kWorker1{Role::worker, 1};
inline constexpr Peer kWorker2{Role::worker, 2};
inline constexpr Peer kServer0{Role::server, 0};
inline constexpr Peer kServer1{Role::server, 1};

inline JobPlan recoverable(std::uint32_t workers, std::uint32_t servers, Keepers keepers, bool replicas = false) {
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

/// The same, which may also go on with fewer workers.
inline JobPlan elastic(std::uint32_t min_workers, std::uint32_t workers, std::uint32_t servers, Keepers keepers,
                       std::uint32_t max_restarts = 0) {
  JobPlan p = recoverable(workers, servers, keepers);
  p.recovery.max_restarts = max_restarts;
  p.recovery.min_workers = min_workers;
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

}  // namespace psring::test
