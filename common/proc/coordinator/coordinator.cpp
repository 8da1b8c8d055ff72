#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {
namespace {

std::string describe_exit(const control::RoleExited& exit) {
  std::string text = exit.signal != 0
                         ? fmt::format("was ended by signal {} ({})", exit.signal, ::strsignal(exit.signal))
                         : fmt::format("exited with status {}", exit.status);
  if (!exit.last_line.empty()) text += ": " + exit.last_line;
  return text;
}

}  // namespace

Coordinator::Coordinator(JobPlan plan, Moment now)
    : plan_(std::move(plan)),
      now_(now),
      deadline_(now + plan_.join_timeout),
      next_tick_(deadline_),
      restarts_(plan_.recovery.restarts),
      given_up_(plan_.recovery.given_up),
      told_missing_(now) {
  check_plan(plan_);
  if (plan_.recovery.is_second) await_returns();
  if (plan_.recovery.recovering) lost_at_ = now;  // the moment of the loss is not known
}

Coordinator::Actions Coordinator::receive(const Connection& from, ControlMessage message, Moment now) {
  begin_call(now);
  State* state = find(from);
  if (const auto* joining = std::get_if<control::Hello>(&message); joining && !state) {
    joining->epoch ? come_back(from, *joining) : join(from, *joining);
  } else if (former_.contains(from)) {
    if (auto* append = std::get_if<control::Append>(&message); append != nullptr && is_safe_file_name(append->file))
      actions_.events.push_back({{}, former_.at(from), std::move(*append)});
  } else if (!state) {
    if (!std::holds_alternative<control::Bye>(message))
      refuse(from, ErrorKind::protocol, fmt::format("'{}' before 'hello'", name_of(message)));
  } else if (!state->said_bye) {
    state->heard = now;
    refuse_waiting(connections_.at(from));
    std::visit([&](auto&& m) { on(*state, std::forward<decltype(m)>(m)); }, std::move(message));
  }
  advance();
  return finish_call();
}

Coordinator::Actions Coordinator::receive_garbage(const Connection& from, const Error& error, Moment now) {
  begin_call(now);
  if (const State* state = find(from))
    fail_job(error.kind(), fmt::format("{}: {}", to_string(state->member), error.what()));
  else
    refuse(from, error.kind(), error.what());
  return finish_call();
}

Coordinator::Actions Coordinator::tick(Moment now) {
  begin_call(now);
  if (now - next_tick_ > plan_.heartbeat_timeout / 2)
    for (auto& [place, state] : members_) state.heard = now;
  check_ends(now);
  check_silence(now);
  check_deadline(now);
  advance();
  tell_missing();
  return finish_call();
}

Coordinator::Actions Coordinator::abort(const Error& cause, Moment now) {
  begin_call(now);
  fail_job(cause.kind(), cause.what());
  return finish_call();
}

void Coordinator::on(State& from, const control::Heartbeat& message) {
  send(from, control::HeartbeatAck{message.sent, message.mark, now_.time_since_epoch()});
  from.idle = message.idle;
  end_stuck_step();
}

void Coordinator::on(State& from, const control::RoleExited& message) {
  const Peer agent = from.member.peer;
  const auto own = agent.role == Role::agent ? roles_of_agent(plan_, agent.rank) : std::vector<Peer>{};
  if (std::find(own.begin(), own.end(), message.role) == own.end())
    return fail_job(ErrorKind::protocol, fmt::format("{} told of {}, which another agent starts",
                                                     to_string(from.member), to_string(message.role)));
  const bool failed = message.signal != 0 || message.status != 0;
  if (returning_ && failed && !message.gone && !members_.contains(message.role))
    early_exits_.insert_or_assign(message.role, message);
  else
    take_exit(message);
}

void Coordinator::take_exit(const control::RoleExited& message) {
  const auto found = members_.find(message.role);
  if (message.pid != 0 && found != members_.end() && found->second.member.pid != message.pid)
    return;  // the exit of a previous process
  switch (processes_.exited(message.role, message.pid, message.gone)) {
    case RoleProcesses::Exit::expected:
      return start_wanted();
    case RoleProcesses::Exit::repeated:
      return;
    case RoleProcesses::Exit::unexpected:
      break;
  }
  if (found != members_.end()) found->second.exited = true;
  const std::optional<Peer> guest = plan_.guest_of(message.role);
  if (guest)
    if (const auto server = members_.find(*guest); server != members_.end()) server->second.exited = true;
  if (found != members_.end() && found->second.failed) return;  // the role itself has reported the cause
  const std::string who = found != members_.end() ? to_string(found->second.member) : to_string(message.role);
  if (message.signal != 0 || message.status != 0)
    return lose(message.role, message.signal != 0 ? ErrorKind::peer_lost : kind_of_status(message.status),
                fmt::format("{} {}", who, describe_exit(message)));
  // Roles leave once the job has ended. The previous coordinator had reported the end to this role, as this coordinator
  // will report it to the others.
  if (found == members_.end() && plan_.recovery.is_second) {
    add_ended(message.role, message.pid);
    if (guest && !members_.contains(*guest)) add_ended(*guest, message.pid);
    return;
  }
  // A role that has joined may have messages in flight on its own link; its silence decides.
  if (found == members_.end()) fail_job(ErrorKind::peer_lost, fmt::format("{} exited before it joined", who));
}

void Coordinator::on(State& from, const control::Failed& message) {
  from.failed = true;
  const bool is_symptom = message.kind == ErrorKind::peer_lost && !message.decided && is_role(from.member.peer.role);
  if (!is_symptom)
    return fail_job(message.kind, fmt::format("{}: {}", to_string(from.member), message.text),
                    connections_.at(from.connection));
  suspect(from, fmt::format("{}: {}", to_string(from.member), message.text));
}

void Coordinator::on(State& from, control::Report&& message) {
  if (epoch_ > 0 && !from.ready) return;  // sent in a previous epoch
  from.reported = true;
  result_.reports[from.member.peer] = message.json;
  actions_.events.push_back({from.member.peer, {}, std::move(message)});
}

void Coordinator::on(State& from, control::Status&& message) {
  if (!is_role(from.member.peer.role) || (epoch_ > 0 && !from.ready)) return;  // sent in a previous epoch
  actions_.events.push_back({from.member.peer, {}, std::move(message)});
}

void Coordinator::on(State& from, control::Append&& message) {
  if (!is_safe_file_name(message.file))
    return fail_job(ErrorKind::protocol,
                    fmt::format("{} may not write to a file of this name in the run folder", to_string(from.member)));
  actions_.events.push_back({from.member.peer, process_of(connections_.at(from.connection), from), std::move(message)});
}

/// In containers, processes of one place have one number: then their lives tell them apart.
std::string Coordinator::process_of(Peer place, const State& state) const {
  std::string name = fmt::format("{}-{}-{}", to_string(place.role), place.rank, state.member.pid);
  return plan_.agents == 0 && state.life > 0 ? fmt::format("{}-{}", name, state.life) : name;
}

void Coordinator::on(State& from, control::Progress&& message) {
  actions_.events.push_back({from.member.peer, {}, std::move(message)});
}

void Coordinator::on(State& from, const control::Bye&) {
  from.said_bye = true;
  const bool may_leave = is_role(from.member.peer.role) && is_complete(from) && phase_ >= Phase::running;
  if (may_leave || from.failed) return;
  // The coordinator before had told this role that the job has ended.
  if (returning_ && plan_.recovery.is_second && is_role(from.member.peer.role)) return mark_ended(from);
  const std::string text = fmt::format("{} left {}", to_string(from.member), phase_text());
  // A program of a user's may leave because it has lost a third.
  if (is_role(from.member.peer.role) && !plan_.recovery.possible()) return suspect(from, text);
  lose(connections_.at(from.connection), ErrorKind::peer_lost, text);
}

void Coordinator::on(State& from, const auto& message) {
  fail_job(ErrorKind::protocol, fmt::format("{} sent '{}', which only the coordinator may send", to_string(from.member),
                                            name_of(ControlMessage(message))));
}

/// The job recovers from the loss, or fails with it.
void Coordinator::lose(Peer place, ErrorKind kind, std::string text) {
  if (phase_ >= Phase::closing || given_up_.contains(place) || continue_without(place, kind, text)) return;
  const auto found = members_.find(place);
  if (kind == ErrorKind::peer_lost && found != members_.end())
    broadcast(control::Lost{found->second.member.peer, text},
              [&](const State& other) { return &other != &found->second; });
  fail_job(kind, std::move(text), place);
}

void Coordinator::fail_job(ErrorKind kind, std::string text, Peer culprit) {
  if (phase_ >= Phase::closing) return;  // a consequence of the first cause, or of the end
  result_.failure = Error(kind, text);
  const bool may_follow = kind == ErrorKind::peer_lost || kind == ErrorKind::timeout;
  if (may_follow && result_.interrupted.signal == 0) result_.interrupted.signal = interrupt_signal_;
  returning_ = false;
  symptom_.reset();
  broadcast(control::Abort{kind, std::move(text), result_.interrupted.signal, culprit},
            [](const State&) { return true; });
  enter(Phase::closing, now_ + plan_.leave_timeout);
}

void Coordinator::check_deadline(Moment now) {
  if (symptom_ && !symptom_is_open()) {
    const Symptom symptom = *std::exchange(symptom_, std::nullopt);
    std::string text = symptom.error.what();
    if (!continue_without({Role::coordinator, 0}, ErrorKind::peer_lost, text))
      fail_job(ErrorKind::peer_lost, std::move(text), symptom.place);
  }
  if (now < deadline_) return;
  if (returning_)
    end_returns();
  else if (phase_ == Phase::joining && !continue_with_present())
    fail_job(ErrorKind::timeout, fmt::format("timed out after {:g} s (--join-timeout) waiting for {}",
                                             seconds(plan_.join_timeout), missing()));
  else if (phase_ == Phase::leaving)
    fail_job(ErrorKind::timeout,
             fmt::format("timed out after {:g} s waiting for {} to exit", seconds(plan_.leave_timeout), missing()));
  else if (phase_ == Phase::closing)
    enter(Phase::ended, kNever);
}

/// Ends each phase whose condition holds; several phases may end at once.
void Coordinator::advance() {
  join_waiting();
  if (symptom_ && phase_ < Phase::closing) return;  // the job has lost a role, and only the cause is not known yet
  if (returning_ && survivors_are_ready() && missing().empty()) end_returns();
  if (phase_ == Phase::joining && !settled_ && !returning_ && survivors_are_ready()) {
    settle_epoch();
    join_waiting();
  }
  if (phase_ == Phase::joining && settled_ && !returning_ && missing().empty()) {
    begin_epoch();
    if (phase_ != Phase::joining) return;  // it failed
    enter(Phase::running, kNever);
    ask_where_to_stop();
  }
  const auto workers_done = [&] {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& m) { return m.first.role != Role::worker || m.second.done; });
  };
  if (phase_ == Phase::running && workers_done()) {
    result_.interrupted = interruption();
    broadcast(control::Finish{result_.interrupted}, [](const State& s) { return s.member.peer.role == Role::server; });
    enter(Phase::finishing, kNever);
  }
  if (phase_ == Phase::finishing && all_roles(&Coordinator::is_complete)) {
    broadcast(control::Finish{result_.interrupted}, [](const State& s) { return s.member.peer.role == Role::worker; });
    enter(Phase::leaving, now_ + std::max(plan_.leave_timeout, 2 * plan_.heartbeat_timeout));
  }
  if (phase_ == Phase::leaving && all_roles(&Coordinator::has_left)) {
    broadcast(control::Finish{result_.interrupted}, [](const State& s) { return s.member.peer.role == Role::agent; });
    enter(Phase::closing, now_ + plan_.leave_timeout);
  }
  const auto gone = [&](const auto& m) {
    return m.second.said_bye || m.second.exited || now_ - m.second.heard >= plan_.heartbeat_timeout;
  };
  if (phase_ == Phase::closing && std::all_of(members_.begin(), members_.end(), gone)) enter(Phase::ended, kNever);
}

void Coordinator::enter(Phase phase, Moment deadline) {
  phase_ = phase;
  deadline_ = deadline;
  told_missing_ = now_;
}

Coordinator::Actions Coordinator::finish_call() {
  next_tick_ = deadline_;
  if (symptom_)
    next_tick_ = std::min(deadline_, now_ < symptom_->graced ? symptom_->graced : now_ + plan_.heartbeat_interval);
  for (const auto& [place, state] : members_) {
    if (phase_ == Phase::ended || state.said_bye) continue;
    if (state.ended && !state.exited) next_tick_ = std::min(next_tick_, *state.ended + plan_.cause_grace);
    if (state.exited && (state.failed || is_complete(state) || phase_ == Phase::closing)) continue;
    // A silent agent is not lost while its roles live: look at its roles again soon.
    const bool stands_still = is_silent(state) && place.role == Role::agent;
    next_tick_ =
        std::min(next_tick_, stands_still ? now_ + plan_.heartbeat_timeout / 4 : state.heard + plan_.heartbeat_timeout);
  }
  return std::exchange(actions_, {});
}

std::uint32_t Coordinator::expected(Role role) const {
  const auto given_up = std::count_if(given_up_.begin(), given_up_.end(), [&](Peer p) { return p.role == role; });
  return plan_.count(role) - static_cast<std::uint32_t>(given_up);
}

bool Coordinator::is_complete(const State& state) const {
  return state.reported && (state.done || state.member.peer.role == Role::server);
}

/// An agent that stands still does not tell that a role has exited: then the role's goodbye counts.
bool Coordinator::has_left(const State& state) const {
  if (state.exited) return true;
  if (plan_.agents == 0) return state.said_bye;
  const bool agents_stand_still = std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
    return member.first.role == Role::agent && is_silent(member.second);
  });
  return state.said_bye && agents_stand_still;
}

bool Coordinator::all_roles(bool (Coordinator::*holds)(const State&) const) const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& m) { return !is_role(m.first.role) || (this->*holds)(m.second); });
}

std::string_view Coordinator::phase_text() const {
  switch (phase_) {
    case Phase::joining:
      return "before all had joined";
    case Phase::running:
      return "before the workers were done";
    default:
      return "before the job had ended";
  }
}

/// All places of roles that agents start, but the places that were given up.
std::vector<Peer> Coordinator::places() const {
  std::vector<Peer> all;
  for (std::uint32_t agent = 0; agent < plan_.agents; ++agent) {
    const auto own = roles_of_agent(plan_, agent);
    std::copy_if(own.begin(), own.end(), std::back_inserter(all),
                 [&](Peer place) { return !given_up_.contains(place); });
  }
  return all;
}

Coordinator::State* Coordinator::find(const Connection& connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &members_.at(found->second);
}

void Coordinator::send(const State& to, ControlMessage message) {
  if (!to.said_bye) actions_.messages.push_back({to.connection, std::move(message)});
}

void Coordinator::broadcast(const ControlMessage& message, auto&& is_receiver) {
  for (const auto& [place, state] : members_)
    if (is_receiver(state)) send(state, message);
}

/// A line of recoveries.jsonl in the run folder.
void Coordinator::record(std::string line) {
  const auto bytes = std::as_bytes(std::span(line));
  actions_.events.push_back(
      {{Role::coordinator, 0}, {}, control::Append{"recoveries.jsonl", {bytes.begin(), bytes.end()}}});
}

/// A line for people, shown by this process and by all agents.
void Coordinator::notice(std::string text) {
  for (const auto& [place, state] : members_)
    if (place.role == Role::agent) send(state, control::Notice{text});
  actions_.events.push_back({{Role::coordinator, 0}, {}, control::Notice{std::move(text)}});
}

}  // namespace psring::net
