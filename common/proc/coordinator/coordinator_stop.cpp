// How a signal ends a job early: all workers agree on a step, and end before it.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {

Coordinator::Actions Coordinator::interrupt(int signal, Moment now) {
  begin_call(now);
  const auto request = own_signals_.take(signal, now);
  if (request != StopRequests::Request::same) interrupt(signal, request == StopRequests::Request::again);
  if (request == StopRequests::Request::first && interrupt_signal_ != 0 && !result_.failure)
    actions_.events.push_back({{Role::coordinator, 0}, {}, control::Notice{notice_of(signal)}});
  advance();
  return finish_call();
}

namespace {

std::string name_of(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

std::string notice_of(int signal) {
  return name_of(signal) + ": the job ends after the step under way; once more ends it at once";
}

/// Returns false if a worker does not ask before its steps, such as a user's own program.
bool Coordinator::can_stop() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& m) { return m.first.role != Role::worker || m.second.asks; });
}

/// A job fails at once before its first step, because there is no step to finish.
void Coordinator::interrupt(std::int32_t signal, bool at_once) {
  if (signal <= 0 || phase_ >= Phase::closing) return;
  const bool first = std::exchange(interrupt_signal_, signal) == 0;
  if (at_once || (phase_ == Phase::joining && epoch_ == 0 && !returning_)) {
    result_.interrupted.signal = signal;
    return fail_job(ErrorKind::peer_lost, at_once ? "interrupted" : "interrupted before the first step");
  }
  if (!can_stop()) {
    result_.interrupted.signal = signal;
    return fail_job(ErrorKind::peer_lost, "interrupted");
  }
  if (first) ask_where_to_stop();
}

/// Asks the workers of a running epoch. While an epoch is being joined, `advance` asks once it runs.
void Coordinator::ask_where_to_stop() {
  if (interrupt_signal_ == 0 || phase_ != Phase::running) return;
  std::set<Peer> workers;
  for (const auto& [place, state] : members_)
    if (place.role == Role::worker) workers.insert(place);
  stop_vote_.emplace(std::move(workers), plan_.own_steps);
  for (const auto& [place, state] : members_) {
    if (place.role != Role::worker) continue;
    if (state.done)
      stop_vote_->answer(place, {state.came_to});
    else
      send(state, control::Pause{epoch_, interrupt_signal_});
  }
  tell_where_to_stop();
}

void Coordinator::tell_where_to_stop() {
  if (!stop_vote_ || !stop_vote_->complete()) return;
  for (const auto& [place, point] : stop_vote_->result())
    if (const auto found = members_.find(place); found != members_.end())
      send(found->second, control::StopBefore{epoch_, point.step, point.piece});
}

void Coordinator::on(State& from, const control::Interrupt& message) {
  const bool first = interrupt_signal_ == 0;
  interrupt(message.signal, message.at_once);
  // The launcher, which has agent 0, says itself which signal it got.
  if (first && interrupt_signal_ != 0 && from.member.peer != Peer{Role::agent, 0})
    notice(fmt::format("{} at {} ends the job", name_of(message.signal), to_string(from.member)));
}

/// A worker that comes back to a second coordinator sends this, too: so the coordinator learns that the job is to end.
void Coordinator::on(State& from, const control::Paused& message) {
  if (message.epoch != epoch_) return;
  const Peer place = connections_.at(from.connection);
  if (place.role != Role::worker)
    return fail_job(ErrorKind::protocol, fmt::format("{} said 'paused' out of turn", to_string(from.member)));
  if (interrupt_signal_ == 0) return interrupt(message.signal, false);
  if (!stop_vote_ || stop_vote_->complete()) return;
  stop_vote_->answer(place, {message.step, message.piece});
  tell_where_to_stop();
}

/// A worker that is done counts as an answer to the vote, because it may have left.
void Coordinator::on(State& from, const control::Done& message) {
  if (epoch_ > 0 && !from.ready) return;  // sent in a previous epoch
  if (from.member.peer.role != Role::worker || (phase_ == Phase::joining && !returning_))
    return fail_job(ErrorKind::protocol, fmt::format("{} said 'done' out of turn", to_string(from.member)));
  from.done = true;
  from.came_to = message.step;
  from.stopped_by = message.signal;
  if (!stop_vote_ || stop_vote_->complete()) return;
  stop_vote_->answer(connections_.at(from.connection), {message.step});
  tell_where_to_stop();
}

/// Ends an interrupted job whose step under way cannot end: all roles have only waited, for the heartbeat timeout.
void Coordinator::end_stuck_step() {
  if (interrupt_signal_ == 0 || phase_ != Phase::running) return;
  const auto is_idle = [&](const auto& m) {
    return !is_role(m.first.role) || m.second.done || m.second.idle >= plan_.heartbeat_timeout;
  };
  if (!std::all_of(members_.begin(), members_.end(), is_idle)) return;
  result_.interrupted.signal = interrupt_signal_;
  fail_job(ErrorKind::peer_lost,
           fmt::format("interrupted in a step that cannot end: all servers and workers have only waited for {:g} s",
                       seconds(plan_.heartbeat_timeout)));
}

/// The steps that the workers reached, if a signal stopped one of them.
control::Interruption Coordinator::interruption() const {
  control::Interruption how;
  bool any = false;
  for (const auto& [place, state] : members_) {
    if (place.role != Role::worker || !state.done) continue;
    if (state.came_to == 0 && state.stopped_by == 0) continue;  // the worker had ended before this coordinator began
    how.signal = std::max(how.signal, state.stopped_by);
    how.first = any ? std::min(how.first, state.came_to) : state.came_to;
    how.last = std::max(how.last, state.came_to);
    any = true;
  }
  return how.signal == 0 ? control::Interruption{} : how;
}

}  // namespace psring::net
