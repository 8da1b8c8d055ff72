#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::test {

using namespace net;

inline Moment at(double s) { return Moment{} + std::chrono::hours(1) + from_seconds(s); }

inline JobPlan plan(std::uint32_t workers, std::uint32_t servers, std::uint32_t agents = 0) {
  JobPlan p;
  p.workers = workers;
  p.servers = servers;
  p.agents = agents;
  p.job = "{\"lr\": 0.1}";
  return p;
}

/// The coordinator with a mailbox for each connection, and a virtual time.
struct Scene {
  explicit Scene(const JobPlan& p) : coordinator(p, at(0)) {}

  void keep(Coordinator::Actions actions) {
    for (auto& outgoing : actions.messages) boxes[outgoing.to].push_back(std::move(outgoing.message));
    for (auto& event : actions.events) events.push_back(std::move(event));
    for (auto& process : actions.joined) joined.push_back(process.connection);
  }
  void say(const std::string& from, ControlMessage message) {
    keep(coordinator.receive(from, std::move(message), at(now)));
  }
  void tick(double s) {
    now = s;
    keep(coordinator.tick(at(now)));
  }
  void hello(const std::string& name, Role role, std::optional<std::uint32_t> rank = {}) {
    say(name, control::Hello{role, rank, "h", "host-" + name, 1});
  }
  /// The only message of this type in the mailbox, or a failed test.
  template <class M>
  M got(const std::string& name) {
    M result;
    int count = 0;
    for (const auto& message : boxes[name])
      if (const auto* m = std::get_if<M>(&message)) result = *m, ++count;
    INFO("in the mailbox of " << name);
    REQUIRE(count == 1);
    return result;
  }
  template <class M>
  bool has(const std::string& name) {
    return std::any_of(boxes[name].begin(), boxes[name].end(),
                       [](const auto& m) { return std::holds_alternative<M>(m); });
  }
  void beat(const std::string& name) { say(name, control::Heartbeat{}); }
  /// Lets everybody but `silent` send heartbeats until `s`.
  void live_until(double s, const std::set<std::string>& silent = {}) {
    while (now < s) {
      now = std::min(s, now + 0.5);
      for (const auto& [name, box] : boxes)
        if (!silent.contains(name)) beat(name);
      tick(now);
    }
  }
  /// Two workers and one server, started by hand, up and running.
  void start() {
    hello("a", Role::worker);
    hello("b", Role::worker);
    hello("s", Role::server);
    for (const char* name : {"a", "b", "s"}) say(name, control::Ready{{{"tcp", std::string("addr-") + name}}});
  }
  const Error& failure() const {
    REQUIRE(coordinator.result().failure);
    return *coordinator.result().failure;
  }

  Coordinator coordinator;
  std::map<std::string, std::vector<ControlMessage>> boxes;
  std::vector<Coordinator::Event> events;
  std::vector<Coordinator::Connection> joined;  ///< of processes whose ends the coordinator wants to be told
  double now = 0;
};

}  // namespace psring::test
