#include <algorithm>
#include <utility>

#include <psring/common/proc/job_plan.h>

namespace psring::net {

std::uint32_t share_begin(std::uint32_t count, std::uint32_t agents, std::uint32_t agent) {
  return agent * (count / agents) + std::min(agent, count % agents);
}

void check_plan(const JobPlan& plan) {
  const bool ends_agents = plan.workers == 0 && plan.servers == 0 && plan.agents > 0;  // that stayed for another job
  if (plan.workers == 0 && !ends_agents) fail(ErrorKind::usage, "--workers: a job has at least one");
  for (const auto& [flag, count] :
       {std::pair("--workers", plan.workers), std::pair("--servers", plan.servers), std::pair("--nodes", plan.agents)})
    if (count > kMaxListItems / 2)
      fail(ErrorKind::usage, "{} {}: at most {} are supported", flag, count, kMaxListItems / 2);
  check(plan.colocated <= std::min(plan.workers, plan.servers), "{} colocated servers, of {}, in {} workers",
        plan.colocated, plan.servers, plan.workers);
  if (plan.heartbeat_interval <= Nanoseconds::zero() || plan.heartbeat_timeout < 2 * plan.heartbeat_interval)
    fail(ErrorKind::usage, "--heartbeat-timeout: {:g} s, expected at least twice the interval of {:g} s",
         seconds(plan.heartbeat_timeout), seconds(plan.heartbeat_interval));
}

std::vector<Peer> roles_of_agent(const JobPlan& plan, std::uint32_t agent) {
  std::vector<Peer> roles;
  for (const auto& [role, count] :
       {std::pair(Role::server, plan.standalone()), std::pair(Role::worker, plan.workers)}) {
    const std::uint32_t end = share_begin(count, plan.agents, agent + 1);
    for (std::uint32_t rank = share_begin(count, plan.agents, agent); rank < end; ++rank) roles.push_back({role, rank});
  }
  return roles;
}

}  // namespace psring::net
