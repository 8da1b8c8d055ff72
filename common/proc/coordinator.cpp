#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include <psring/common/proc/coordinator.h>

namespace psring::net {
namespace {

std::string count_of(std::size_t count, Role role) {
  return fmt::format("{} {}{}", count, to_string(role), count == 1 ? "" : "s");
}

/// The first `agents` shares of `count`: those with a smaller number get one more where it does not divide.
std::uint32_t share_begin(std::uint32_t count, std::uint32_t agents, std::uint32_t agent) {
  return agent * (count / agents) + std::min(agent, count % agents);
}

std::string describe_exit(const control::RoleExited& exit) {
  std::string text = exit.signal != 0
                         ? fmt::format("was ended by signal {} ({})", exit.signal, ::strsignal(exit.signal))
                         : fmt::format("exited with status {}", exit.status);
  if (!exit.last_line.empty()) text += ": " + exit.last_line;
  return text;
}

}  // namespace

std::vector<Peer> roles_of_agent(const JobPlan& plan, std::uint32_t agent) {
  std::vector<Peer> roles;
  const std::uint32_t servers = plan.colocated ? 0 : plan.servers;
  for (const auto& [role, count] : {std::pair(Role::server, servers), std::pair(Role::worker, plan.workers)}) {
    const std::uint32_t end = share_begin(count, plan.agents, agent + 1);
    for (std::uint32_t rank = share_begin(count, plan.agents, agent); rank < end; ++rank) roles.push_back({role, rank});
  }
  return roles;
}

Coordinator::Coordinator(JobPlan plan, Moment now)
    : plan_(std::move(plan)),
      now_(now),
      deadline_(now + plan_.join_timeout),
      next_tick_(deadline_),
      restarts_(plan_.recovery.restarts),
      given_up_(plan_.recovery.given_up) {
  if (plan_.recovery.is_second) await_returns();
  if (plan_.workers == 0) fail(ErrorKind::usage, "--workers: a job has at least one");
  for (const auto& [flag, count] : {std::pair("--workers", plan_.workers), std::pair("--servers", plan_.servers),
                                    std::pair("--nodes", plan_.agents)})
    if (count > kMaxListItems / 2)
      fail(ErrorKind::usage, "{} {}: at most {} are supported", flag, count, kMaxListItems / 2);
  if (plan_.heartbeat_interval <= Nanoseconds::zero() || plan_.heartbeat_timeout < 2 * plan_.heartbeat_interval)
    fail(ErrorKind::usage, "--heartbeat-timeout: {:g} s, expected at least twice the interval of {:g} s",
         seconds(plan_.heartbeat_timeout), seconds(plan_.heartbeat_interval));
}

Coordinator::Actions Coordinator::receive(const Connection& from, ControlMessage message, Moment now) {
  now_ = now;
  State* state = find(from);
  if (const auto* joining = std::get_if<control::Hello>(&message); joining && !state) {
    joining->epoch ? come_back(from, *joining) : hello(from, *joining);
  } else if (former_.contains(from)) {
    if (auto* append = std::get_if<control::Append>(&message); append != nullptr && is_safe_file_name(append->file))
      actions_.events.push_back({{}, former_.at(from), std::move(*append)});
  } else if (!state) {
    if (!std::holds_alternative<control::Bye>(message))
      refuse(from, ErrorKind::protocol, fmt::format("'{}' before 'hello'", name_of(message)));
  } else if (!state->said_bye) {
    state->heard = now;
    std::visit([&](auto&& m) { on(*state, std::forward<decltype(m)>(m)); }, std::move(message));
  }
  advance();
  return finish_call();
}

Coordinator::Actions Coordinator::receive_garbage(const Connection& from, const Error& error, Moment now) {
  now_ = now;
  if (const State* state = find(from))
    fail_job(error.kind(), fmt::format("{}: {}", to_string(state->member), error.what()));
  else
    refuse(from, error.kind(), error.what());
  return finish_call();
}

Coordinator::Actions Coordinator::tick(Moment now) {
  now_ = now;
  if (now - next_tick_ > plan_.heartbeat_timeout / 2)
    for (auto& [peer, state] : members_) state.heard = now;
  check_silence(now);
  check_deadline(now);
  advance();
  return finish_call();
}

Coordinator::Actions Coordinator::abort(const Error& cause, Moment now) {
  now_ = now;
  fail_job(cause.kind(), cause.what());
  return finish_call();
}

void Coordinator::hello(const Connection& from, const control::Hello& message) {
  if (message.role == Role::coordinator) return refuse(from, ErrorKind::protocol, "a job has one coordinator");
  if (result_.failure)
    return refuse(from, result_.failure->kind(), fmt::format("the job has failed: {}", result_.failure->what()));
  if (phase_ >= Phase::closing) return refuse(from, ErrorKind::usage, "the job has ended");
  const std::uint32_t most = planned(message.role);
  if (most == 0)
    return refuse(from, ErrorKind::usage,
                  message.role == Role::agent ? "the job's roles are started by hand, not by agents"
                                              : fmt::format("the job has no {}", to_string(message.role)));
  if (message.rank && *message.rank >= most)
    return refuse(from, ErrorKind::usage,
                  fmt::format("{} {}: the job has {}, ranks from 0", to_string(message.role), *message.rank,
                              count_of(most, message.role)));
  if (message.rank && given_up_.contains({message.role, *message.rank}))
    return refuse(from, ErrorKind::peer_lost, "the job has gone on without it");
  const std::optional<std::uint32_t> rank = free_rank(message);
  if (!rank) {
    if (!message.rank)
      return refuse(from, ErrorKind::usage,
                    fmt::format("all {} of the job have joined already", count_of(most, message.role)));
    const Member& holder = members_.at({message.role, *message.rank}).member;
    return refuse(from, ErrorKind::usage, fmt::format("{} has joined already", to_string(holder)));
  }
  const Peer place{message.role, *rank};
  if (const auto dead = dead_.find(place); dead != dead_.end() && dead->second == message.pid) return;
  // Nor is this one a member, but the one that is started once it has ended.
  if (is_role(place.role) && ending_.contains(plan_.colocated ? Peer{Role::worker, place.rank} : place)) return;
  State& state = members_[place];
  state.member = {place, message.host_id, message.hostname, message.pid, {}};
  state.processor = message.processor;
  state.asks = message.asks;
  state.connection = from;
  state.heard = now_;
  connections_[from] = place;
  send(state, control::Welcome{place.rank, plan_.job, plan_.heartbeat_interval, plan_.heartbeat_timeout, epoch_,
                               plan_.recovery.patience});
  state.epoch = epoch_;
  if (message.role != Role::agent) return;
  const std::vector<Peer> roles = roles_of_agent(plan_, *rank);
  running_.insert(roles.begin(), roles.end());
  send(state, control::StartRoles{roles});
}

std::optional<std::uint32_t> Coordinator::free_rank(const control::Hello& message) {
  const auto is_free = [&](std::uint32_t rank) {
    return !members_.contains({message.role, rank}) && !given_up_.contains({message.role, rank});
  };
  if (message.rank) return is_free(*message.rank) ? message.rank : std::nullopt;
  const std::uint32_t first = message.role == Role::agent && plan_.reserve_agent_0 ? 1 : 0;
  for (std::uint32_t rank = first; rank < planned(message.role); ++rank)
    if (is_free(rank)) return rank;
  return std::nullopt;
}

void Coordinator::refuse(const Connection& to, ErrorKind kind, std::string text) {
  actions_.messages.push_back({to, control::Refused{kind, std::move(text)}});
}

void Coordinator::on(State& from, control::Ready&& message) {
  if (message.epoch < epoch_) return;  // it has not heard of this one yet
  if ((from.ready && !from.repeats) || !is_role(from.member.peer.role) || message.epoch > epoch_)
    return fail_job(ErrorKind::protocol, fmt::format("{} said 'ready' out of turn", to_string(from.member)));
  from.member.addresses = std::move(message.addresses);
  from.step = message.step;
  from.has_state = message.has_state;
  from.ready = true;
}

void Coordinator::on(State& from, const control::Heartbeat& message) {
  send(from, control::HeartbeatAck{message.sent, message.mark, now_.time_since_epoch()});
}

void Coordinator::on(State& from, const control::RoleExited& message) {
  const Peer agent = from.member.peer;
  const auto own = agent.role == Role::agent ? roles_of_agent(plan_, agent.rank) : std::vector<Peer>{};
  if (std::find(own.begin(), own.end(), message.role) == own.end())
    return fail_job(ErrorKind::protocol, fmt::format("{} tells of {}, which is not its own", to_string(from.member),
                                                     to_string(message.role)));
  const auto found = members_.find(message.role);
  if (message.pid != 0 && found != members_.end() && found->second.member.pid != message.pid) return;  // one before it
  if (ending_.erase(message.role) > 0) {
    running_.erase(message.role);
    dead_[message.role] = message.pid;
    return start_absent();
  }
  if (!running_.contains(message.role) || message.gone) return;  // told twice
  running_.erase(message.role);
  dead_[message.role] = message.pid;
  mark_exited(message.role);
  if (plan_.colocated) mark_exited({Role::server, message.role.rank});
  if (found != members_.end() && found->second.failed) return;  // it has said itself why
  const std::string who = found != members_.end() ? to_string(found->second.member) : to_string(message.role);
  if (message.signal != 0 || message.status != 0)
    return lose(message.role, message.signal != 0 ? ErrorKind::peer_lost : kind_of_status(message.status),
                fmt::format("{} {}", who, describe_exit(message)));
  if (found == members_.end() && plan_.recovery.is_second) return had_ended(message);
  // A role that has joined may have messages on the way, on its own link: silence decides about it.
  if (found == members_.end()) fail_job(ErrorKind::peer_lost, fmt::format("{} exited before it joined", who));
}

/// Roles leave once the job has ended: the coordinator before this one had told it so, as it will tell the others.
void Coordinator::had_ended(const control::RoleExited& message) {
  State& state = members_[message.role];
  state.member.peer = message.role;
  state.member.pid = message.pid;
  state.epoch = epoch_;
  state.ready = state.running = state.done = state.reported = state.said_bye = state.exited = true;
}

void Coordinator::mark_exited(Peer role) {
  if (const auto found = members_.find(role); found != members_.end()) found->second.exited = true;
}

void Coordinator::on(State& from, const control::Failed& message) {
  from.failed = true;
  const bool is_symptom = message.kind == ErrorKind::peer_lost && is_role(from.member.peer.role) && plan_.agents > 0;
  if (!is_symptom)
    return fail_job(message.kind, fmt::format("{}: {}", to_string(from.member), message.text),
                    connections_.at(from.connection));
  if (phase_ < Phase::closing) suspect(from, message.text);
}

/// Where the job may go on only without the one that is lost, it has to be known who that is: its silence tells.
void Coordinator::suspect(const State& from, std::string_view text) {
  if (symptom_) return;
  symptom_ = Error(ErrorKind::peer_lost, fmt::format("{}: {}", to_string(from.member), text));
  symptom_of_ = connections_.at(from.connection);
  const bool names = plan_.recovery.min_workers > 0 && restarts_ == plan_.recovery.max_restarts;
  cause_due_ = now_ + plan_.cause_grace + (names ? plan_.heartbeat_timeout : Nanoseconds(0));
}

void Coordinator::on(State& from, control::Report&& message) {
  if (epoch_ > 0 && !from.ready) return;  // of an epoch that is over
  from.reported = true;
  result_.reports[from.member.peer] = message.json;
  actions_.events.push_back({from.member.peer, {}, std::move(message)});
}

void Coordinator::on(State& from, control::Append&& message) {
  if (!is_safe_file_name(message.file))
    return fail_job(ErrorKind::protocol,
                    fmt::format("{} may not write to a file of this name in the run folder", to_string(from.member)));
  actions_.events.push_back({from.member.peer, process_of(connections_.at(from.connection), from), std::move(message)});
}

std::string Coordinator::process_of(Peer place, const State& state) {
  return fmt::format("{}-{}-{}", to_string(place.role), place.rank, state.member.pid);
}

void Coordinator::on(State& from, control::Progress&& message) {
  actions_.events.push_back({from.member.peer, {}, std::move(message)});
}

void Coordinator::on(State& from, const control::Bye&) {
  from.said_bye = true;
  const bool may_leave = is_role(from.member.peer.role) && is_complete(from) && phase_ >= Phase::running;
  if (!may_leave && !from.failed)
    lose(connections_.at(from.connection), ErrorKind::peer_lost,
         fmt::format("{} left {}", to_string(from.member), doing()));
}

void Coordinator::on(State& from, const auto& message) {
  fail_job(ErrorKind::protocol, fmt::format("{} said '{}', which is not for members to say", to_string(from.member),
                                            name_of(ControlMessage(message))));
}

void Coordinator::lose(Peer place, ErrorKind kind, std::string text) {
  if (phase_ >= Phase::closing || given_up_.contains(place) || goes_on_without(place, kind, text)) return;
  const auto found = members_.find(place);
  if (kind == ErrorKind::peer_lost && found != members_.end())
    broadcast(control::Lost{found->second.member.peer, text},
              [&](const State& other) { return &other != &found->second; });
  fail_job(kind, std::move(text), place);
}

void Coordinator::fail_job(ErrorKind kind, std::string text, Peer culprit) {
  if (phase_ >= Phase::closing) return;  // a consequence of the first cause, or of the end
  result_.failure = Error(kind, text);
  returning_ = false;
  cause_due_ = kNever;
  broadcast(control::Abort{kind, std::move(text), result_.interrupted.signal, culprit},
            [](const State&) { return true; });
  enter(Phase::closing, now_ + plan_.leave_timeout);
}

void Coordinator::stood_still(Nanoseconds late, Moment now) {
  for (auto& [place, state] : members_) state.heard = now;
  for (Moment* const deadline : {&deadline_, &cause_due_})
    if (*deadline != kNever) *deadline += late;
}

/// An agent may stand still (Ctrl-Z in its terminal) while its roles go on: they would have ended with its process. It
/// is lost once one of them is missing, as nobody would start that again or tell how it ended.
bool Coordinator::roles_live(Peer agent) const {
  const std::vector<Peer> roles = roles_of_agent(plan_, agent.rank);
  return std::all_of(roles.begin(), roles.end(), [&](Peer place) {
    if (given_up_.contains(place)) return true;
    const auto found = members_.find(place);
    if (found == members_.end()) return false;
    const State& state = found->second;
    return (state.said_bye && is_complete(state)) ||
           (!state.exited && now_ - state.heard < plan_.heartbeat_timeout / 2);
  });
}

void Coordinator::check_silence(Moment now) {
  std::vector<std::pair<Peer, std::string>> silent;
  for (const auto& [place, state] : members_) {
    const Nanoseconds quiet = now - state.heard;
    if (phase_ >= Phase::closing || state.said_bye || quiet < plan_.heartbeat_timeout) continue;
    if (state.exited && (state.failed || is_complete(state))) continue;
    if (place.role == Role::agent && roles_live(place)) continue;
    silent.emplace_back(place, state.exited ? fmt::format("{} exited {}", to_string(state.member), doing())
                                            : fmt::format("nothing from {} for {:.1f} s {}", to_string(state.member),
                                                          seconds(quiet), doing()));
  }
  for (auto& [place, text] : silent) lose(place, ErrorKind::peer_lost, std::move(text));
}

void Coordinator::check_deadline(Moment now) {
  if (now >= cause_due_) {
    std::string text = std::exchange(symptom_, std::nullopt)->what();
    cause_due_ = kNever;
    if (!goes_on_without({Role::coordinator, 0}, ErrorKind::peer_lost, text))
      fail_job(ErrorKind::peer_lost, std::move(text), symptom_of_);
  }
  if (now < deadline_) return;
  if (returning_)
    end_returns();
  else if (phase_ == Phase::joining && !goes_on_with_present())
    fail_job(ErrorKind::timeout, fmt::format("timed out after {:g} s (--join-timeout) waiting for {}",
                                             seconds(plan_.join_timeout), missing()));
  else if (phase_ == Phase::leaving)
    fail_job(ErrorKind::timeout,
             fmt::format("timed out after {:g} s waiting for {} to exit", seconds(plan_.leave_timeout), missing()));
  else if (phase_ == Phase::closing)
    enter(Phase::ended, kNever);
}

/// Each phase ends when what it waits for is there; several may end at once.
void Coordinator::advance() {
  if (symptom_ && phase_ < Phase::closing) return;  // it has failed: only the cause is not known yet
  if (returning_ && survivors_are_ready() && missing().empty()) end_returns();
  if (phase_ == Phase::joining && !settled_ && !returning_ && survivors_are_ready()) settle_epoch();
  if (phase_ == Phase::joining && settled_ && !returning_ && missing().empty()) {
    assign_servers();
    number_workers();
    control::Members list = list_of_members();
    for (const auto& [place, state] : members_) {
      list.self = state.member.peer;
      send(state, list);
    }
    compare_processors();
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

control::Members Coordinator::list_of_members() const {
  control::Members list{{}, epoch_, {}};
  for (const auto& [place, state] : members_)
    if (is_role(place.role)) list.members.push_back(state.member);
  std::sort(list.members.begin(), list.members.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
  return list;
}

void Coordinator::enter(Phase phase, Moment deadline) {
  phase_ = phase;
  deadline_ = deadline;
}

Coordinator::Actions Coordinator::finish_call() {
  next_tick_ = std::min(deadline_, cause_due_);
  if (phase_ != Phase::ended)
    for (const auto& [peer, state] : members_)
      if (!state.said_bye && !(state.exited && (state.failed || is_complete(state) || phase_ == Phase::closing)))
        // Of an agent that stands still and is not lost: when its roles are looked at again.
        next_tick_ =
            std::min(next_tick_, is_silent(state) && peer.role == Role::agent ? now_ + plan_.heartbeat_timeout / 4
                                                                              : state.heard + plan_.heartbeat_timeout);
  return std::exchange(actions_, {});
}

std::uint32_t Coordinator::expected(Role role) const {
  return planned(role) - static_cast<std::uint32_t>(std::count_if(given_up_.begin(), given_up_.end(),
                                                                  [&](Peer place) { return place.role == role; }));
}

std::uint32_t Coordinator::planned(Role role) const {
  return role == Role::worker ? plan_.workers : role == Role::server ? plan_.servers : plan_.agents;
}

bool Coordinator::is_complete(const State& state) const {
  return state.reported && (state.done || state.member.peer.role == Role::server);
}

/// An agent that stands still does not tell that a role has exited.
bool Coordinator::has_left(const State& state) const {
  if (plan_.agents == 0 || state.exited) return plan_.agents == 0 ? state.said_bye : true;
  const bool agents_stand_still = std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
    return member.first.role == Role::agent && is_silent(member.second);
  });
  return state.said_bye && agents_stand_still;
}

bool Coordinator::all_roles(bool (Coordinator::*holds)(const State&) const) const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& m) { return !is_role(m.first.role) || (this->*holds)(m.second); });
}

/// What the phase waits for: "1 worker, 2 servers and worker 1 (host:4711) to be ready"; "" for nothing.
std::string Coordinator::missing() const {
  std::vector<std::string> parts;
  if (phase_ == Phase::joining) {
    for (const Role role : {Role::agent, Role::worker, Role::server}) {
      const auto joined =
          std::count_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first.role == role; });
      const std::size_t absent = expected(role) - static_cast<std::size_t>(joined);
      if (absent > 0) parts.push_back(count_of(absent, role));
      if (role == Role::agent && absent > 0) break;  // the roles that are not there are those of the absent agents
    }
  }
  std::vector<std::string> late;
  for (const auto& [peer, state] : members_) {
    if (!is_role(peer.role)) continue;
    if (phase_ == Phase::joining && !state.ready) late.push_back(to_string(state.member) + " to be ready");
    if (phase_ == Phase::leaving && !has_left(state)) late.push_back(to_string(state.member));
  }
  if (late.size() > 3) late = {late[0], late[1], fmt::format("{} more like it", late.size() - 2)};
  parts.insert(parts.end(), late.begin(), late.end());
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string_view Coordinator::doing() const {
  switch (phase_) {
    case Phase::joining:
      return "before all had joined";
    case Phase::running:
      return "before the workers were done";
    default:
      return "before the job had ended";
  }
}

Coordinator::State* Coordinator::find(const Connection& connection) {
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : &members_.at(found->second);
}

void Coordinator::send(const State& to, ControlMessage message) {
  if (!to.said_bye) actions_.messages.push_back({to.connection, std::move(message)});
}

void Coordinator::broadcast(const ControlMessage& message, auto&& whom) {
  for (const auto& [peer, state] : members_)
    if (whom(state)) send(state, message);
}

}  // namespace psring::net
