// Detects lost members whose loss no message reports.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {

Coordinator::Actions Coordinator::process_ended(const Connection& connection, Moment now) {
  begin_call(now);
  if (State* state = find(connection)) state->ended = now;
  return finish_call();
}

void Coordinator::stood_still(Nanoseconds late, Moment now) {
  for (auto& [place, state] : members_) state.heard = now;
  if (deadline_ != kNever) deadline_ += late;
  if (symptom_) symptom_->graced += late;
}

/// An agent may stand still (Ctrl-Z in its terminal) while its roles run: they would have ended with its process. The
/// agent counts as lost once one of its roles is missing, because no other process could start that role again or
/// report how it ended. An agent without roles counts as lost at once; a row of a table may have no role for an agent.
bool Coordinator::roles_live(Peer agent) const {
  const std::vector<Peer> roles = roles_of_agent(plan_, agent.rank);
  return !roles.empty() && std::all_of(roles.begin(), roles.end(), [&](Peer place) {
    if (given_up_.contains(place)) return true;
    const auto found = members_.find(place);
    if (found == members_.end()) return false;
    const State& state = found->second;
    return (state.said_bye && is_complete(state)) ||
           (!state.exited && now_ - state.heard < plan_.heartbeat_timeout / 2);
  });
}

void Coordinator::check_ends(Moment now) {
  for (auto& [place, state] : members_)
    if (state.ended && now - *state.ended >= plan_.cause_grace) state.exited = true;
}

void Coordinator::check_silence(Moment now) {
  std::vector<std::pair<Peer, std::string>> silent;
  for (const auto& [place, state] : members_) {
    const Nanoseconds quiet = now - state.heard;
    const bool gone = state.exited && state.ended;
    if (phase_ >= Phase::closing || state.said_bye || (quiet < plan_.heartbeat_timeout && !gone)) continue;
    if (state.exited && (state.failed || is_complete(state))) continue;
    if (place.role == Role::agent && roles_live(place)) continue;
    silent.emplace_back(place, state.exited ? fmt::format("{} exited {}", to_string(state.member), phase_text())
                                            : fmt::format("nothing from {} for {:.1f} s {}", to_string(state.member),
                                                          seconds(quiet), phase_text()));
  }
  for (auto& [place, text] : silent) {
    if (symptom_) text += fmt::format("; {}", symptom_->error.what());  // the member that noticed, and its activity
    // The loss of a worker may have removed the server in its process.
    if (members_.contains(place)) lose(place, ErrorKind::peer_lost, std::move(text));
  }
}

}  // namespace psring::net
