// How members come back after their connection broke: to the same coordinator, or to a second one.
#include <algorithm>
#include <iterator>
#include <utility>

#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {

/// A member that had joined tells where it was, over a new connection.
void Coordinator::come_back(const Connection& from, const control::Hello& message) {
  const Peer place{message.role, message.rank.value_or(0)};
  const auto found = members_.find(place);
  const bool known = found != members_.end() && found->second.member.pid == message.pid;
  const auto has_its_duty = [&](const auto& m) {
    return m.first != place && message.running && m.second.running && m.second.member.peer == message.duty;
  };
  if (still_ends(place)) return;
  if (place.role == Role::coordinator || place.rank >= plan_.count(place.role) || message.duty.role != place.role ||
      message.duty.rank >= plan_.count(place.role) || std::any_of(members_.begin(), members_.end(), has_its_duty))
    return refuse(from, ErrorKind::protocol,
                  fmt::format("the job has no place for {} as {}", to_string(place), to_string(message.duty)));
  if (result_.failure || (!known && !(returning_ && found == members_.end())))
    return refuse(from, ErrorKind::peer_lost, "the job continues without this process");
  if (const auto exit = early_exits_.find(plan_.process_of(place)); exit != early_exits_.end()) {
    if (exit->second.pid == message.pid) return;  // the process has ended since it said hello
    early_exits_.erase(exit);
  }
  // A server in a worker's process has ended with the worker since it said hello.
  if (const auto own = members_.find(plan_.process_of(place));
      !known && own != members_.end() && own->second.exited && own->second.member.pid == message.pid)
    return add_ended(place, message.pid);
  if (known) connections_.erase(found->second.connection);
  State& state = members_[place];
  state.repeats = true;
  welcome(state, place, from);
  if (known) return repeat_messages(state, message);
  state.member = {message.duty, message.host_id, message.hostname, message.pid, {}};
  state.processor = message.processor;
  state.asks = message.asks;
  state.epoch = *message.epoch;
  state.ready = state.running = message.running;
  begun_ = begun_ || message.running;
  epoch_ = std::max(epoch_, state.epoch);
  if (place.role == Role::agent) processes_.started(roles_of_agent(plan_, place.rank));
}

/// Repeats the messages that may have been lost with the previous connection.
void Coordinator::repeat_messages(State& state, const control::Hello& message) {
  const Peer place = connections_.at(state.connection);
  if (place.role == Role::agent) {
    std::set<Peer> absent;
    std::copy_if(processes_.running().begin(), processes_.running().end(), std::inserter(absent, absent.end()),
                 [&](Peer role) { return !members_.contains(role) && !processes_.ending(role); });
    send_start(absent);
    send_end(processes_.ending());
    if (phase_ >= Phase::closing) send(state, control::Finish{result_.interrupted});
    return;
  }
  if (*message.epoch < epoch_) return send(state, control::Regroup{epoch_, "the coordinator was out of reach"});
  if (phase_ == Phase::joining) return;
  if (!message.running) {
    control::Members list = list_of_members();
    list.self = state.member.peer;
    send(state, list);
  }
  if (phase_ >= (place.role == Role::server ? Phase::finishing : Phase::leaving))
    return send(state, control::Finish{result_.interrupted});
  if (place.role == Role::worker && interrupt_signal_ != 0) ask_where_to_stop();
}

void Coordinator::await_returns() {
  returning_ = true;
  deadline_ = next_tick_ = now_ + 2 * plan_.heartbeat_timeout;
}

/// All members that will come back have come: the job continues where it was, or regroups without the others.
void Coordinator::end_returns() {
  for (const auto& [role, exit] : std::exchange(early_exits_, {})) take_exit(exit);
  returning_ = false;
  const bool over = std::any_of(members_.begin(), members_.end(),
                                [](const auto& m) { return is_role(m.first.role) && m.second.exited; });
  // A role that has not come back to a job that is over has ended, or was lost after its work.
  for (const Peer place : places())
    if (over && !members_.contains(place)) add_ended(place, 0);
  const auto count = [&](auto&& holds) {
    return std::count_if(members_.begin(), members_.end(),
                         [&](const auto& m) { return is_role(m.first.role) && holds(m.second); });
  };
  const auto running =
      count([&](const State& state) { return state.running && (state.epoch == epoch_ || state.exited); });
  if (!begun_ && epoch_ == 0) {  // the job had not begun
    enter(Phase::joining, now_ + plan_.join_timeout);
  } else if (missing().empty() &&
             static_cast<std::size_t>(running) == expected(Role::worker) + expected(Role::server)) {
    enter(Phase::running, kNever);
    ask_where_to_stop();
  } else {
    phase_ = Phase::running;
    for (std::uint32_t rank = 0; rank < plan_.agents; ++rank)
      if (const Peer agent{Role::agent, rank}; !members_.contains(agent))
        lose(agent, ErrorKind::peer_lost, fmt::format("{} did not come back to the coordinator", to_string(agent)));
    for (const Peer place : places())
      if (!members_.contains(place) && !processes_.wanted(place))
        lose(place, ErrorKind::peer_lost, fmt::format("{} did not come back to the coordinator", to_string(place)));
    if (phase_ == Phase::running) regroup("the coordinator was lost");
  }
  start_wanted();
}

/// Adds a role that has exited after the previous coordinator had reported the end of the job to it.
void Coordinator::add_ended(Peer place, std::uint32_t pid) {
  State& state = members_[place];
  state.member.peer = place;
  state.member.pid = pid;
  state.epoch = epoch_;
  mark_ended(state);
}

void Coordinator::mark_ended(State& state) {
  state.ready = state.running = state.done = state.reported = state.said_bye = state.exited = true;
}

}  // namespace psring::net
