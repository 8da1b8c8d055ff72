#include <psring/common/proc/role_processes.h>

namespace psring::net {

bool RoleProcesses::has_ended(Peer place, std::uint32_t pid) const {
  const auto found = ended_.find(place);
  return found != ended_.end() && found->second == pid;
}

bool RoleProcesses::end(Peer place) {
  if (!running_.contains(place)) return false;
  ending_.insert(place);
  return true;
}

RoleProcesses::Exit RoleProcesses::exited(Peer place, std::uint32_t pid, bool absent) {
  const bool expected = ending_.erase(place) > 0;
  if (!expected && (!running_.contains(place) || absent)) return Exit::repeated;
  running_.erase(place);
  ended_[place] = pid;
  return expected ? Exit::expected : Exit::unexpected;
}

std::set<Peer> RoleProcesses::start(const std::function<bool(Peer)>& may_start) {
  std::set<Peer> now;
  for (const Peer place : wanted_)
    if (!ending_.contains(place) && may_start(place)) now.insert(place);
  for (const Peer place : now) wanted_.erase(place);
  running_.insert(now.begin(), now.end());
  return now;
}

}  // namespace psring::net
