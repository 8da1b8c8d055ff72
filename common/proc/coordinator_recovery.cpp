#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <psring/common/proc/coordinator.h>

namespace psring::net {
namespace {

/// Text may be a process's own, in any encoding.
std::string to_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

/// The job has lost a role, a host, or (as the coordinator) something that nobody can name. False where that is its
/// end; then `text` may say more.
bool Coordinator::goes_on_without(Peer place, ErrorKind kind, std::string& text) {
  const RecoveryPlan& plan = plan_.recovery;
  if (!plan.possible() || kind != ErrorKind::peer_lost) return false;
  if (place.role == Role::agent) return goes_on_without_host(place, text);
  if (phase_ >= Phase::finishing && is_role(place.role)) return ends_without(place);
  if (restarts_ == plan.max_restarts && !may_give_up({place})) {
    if (plan.max_restarts > 0) text += fmt::format("; --max-restarts {}: no more", plan.max_restarts);
    if (plan.min_workers > 0 && place.role == Role::worker)
      text += fmt::format("; --elastic {}:{}: no fewer", plan.min_workers, plan_.workers);
    return false;
  }
  const bool again = restarts_ < plan.max_restarts;
  if (again) ++restarts_;
  note_loss(text);
  if (plan_.colocated && is_role(place.role)) {
    remove({Role::server, place.rank});
    place.role = Role::worker;  // the process
  }
  if (!again) {
    give_up({place});
  } else if (is_role(place.role)) {
    remove(place);
    to_start_.insert(place);
  }
  goes_on_after(text);
  return true;
}

void Coordinator::goes_on_after(const std::string& text) {
  if (phase_ == Phase::running) {
    regroup(text);
  } else if (epoch_ > 0 && !anew_) {
    settled_ = false;  // it may have been the one with the state
  }
  start_absent();
}

/// Nobody can start its roles again.
bool Coordinator::goes_on_without_host(Peer agent, const std::string& text) {
  const std::vector<Peer> own = roles_of_agent(plan_, agent.rank);
  std::set<Peer> lost(own.begin(), own.end());
  std::erase_if(lost, [&](Peer place) { return given_up_.contains(place); });
  if ((plan_.reserve_agent_0 && agent.rank == 0) || !may_give_up(lost)) return false;
  note_loss(text);
  for (const Peer place : lost) running_.erase(place);
  given_up_.insert(agent);
  drop(agent);
  if (phase_ >= Phase::finishing) {
    for (const Peer place : lost) ends_without(place);
    return true;
  }
  give_up(lost);
  goes_on_after(text);
  return true;
}

/// Where all that is waited for are workers, or agents of workers alone, that the job can do without.
bool Coordinator::goes_on_with_present() {
  std::set<Peer> absent;
  std::set<Peer> agents;
  for (std::uint32_t rank = 0; rank < plan_.agents; ++rank) {
    if (given_up_.contains({Role::agent, rank}) || members_.contains({Role::agent, rank})) continue;
    if (rank == 0 && plan_.reserve_agent_0) return false;
    agents.insert({Role::agent, rank});
    for (const Peer place : roles_of_agent(plan_, rank)) absent.insert(place);
  }
  for (const auto& [role, count] : {std::pair(Role::server, plan_.servers), std::pair(Role::worker, plan_.workers)}) {
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const auto found = members_.find({role, rank});
      if (found == members_.end() || !found->second.ready) absent.insert({role, rank});
    }
  }
  std::erase_if(absent, [&](Peer place) { return given_up_.contains(place); });
  if (absent.empty() || !may_give_up(absent)) return false;
  const std::string text =
      fmt::format("nothing from {} for {:g} s (--join-timeout)", missing(), seconds(plan_.join_timeout));
  note_loss(text);
  given_up_.insert(agents.begin(), agents.end());
  give_up(absent);
  enter(Phase::joining, now_ + plan_.join_timeout);
  goes_on_after(text);
  return true;
}

bool Coordinator::may_give_up(const std::set<Peer>& places) const {
  const auto is_worker = [](Peer place) { return place.role == Role::worker; };
  return plan_.recovery.min_workers > 0 && std::all_of(places.begin(), places.end(), is_worker) &&
         expected(Role::worker) >= plan_.recovery.min_workers + places.size();
}

void Coordinator::give_up(const std::set<Peer>& places) {
  for (const Peer place : places) {
    remove(place);
    to_start_.erase(place);
  }
  given_up_.insert(places.begin(), places.end());
  nlohmann::ordered_json ranks;
  for (const Peer place : given_up_) ranks[std::string(to_string(place.role))].push_back(place.rank);
  record(to_line({{"workers", expected(Role::worker)}, {"epoch", epoch_}, {"given_up", ranks}}));
  notice(fmt::format("going on with {} of {} workers, which share the global batch", expected(Role::worker),
                     plan_.workers));
}

/// Its workers are done: what is lost now is its report.
bool Coordinator::ends_without(Peer place) {
  const auto found = members_.find(place);
  if (found == members_.end()) return false;
  if (std::exchange(found->second.said_bye, true)) return true;
  found->second.reported = true;
  found->second.exited = !running_.contains(place);
  if (!found->second.exited) end_process(place);
  note_loss(fmt::format("{} was lost after the workers were done", to_string(found->second.member)));
  return true;
}

void Coordinator::remove(Peer place) {
  drop(place);
  if (!running_.contains(place)) return;
  ending_.insert(place);
  end_process(place);
}

/// It is no member any more.
void Coordinator::drop(Peer place) {
  const auto found = members_.find(place);
  if (found == members_.end()) return;
  former_[found->second.connection] = process_of(place, found->second);
  connections_.erase(found->second.connection);
  members_.erase(found);
}

void Coordinator::end_process(Peer place) {
  send_to_agents({place}, [](std::vector<Peer> roles) { return control::EndRoles{std::move(roles)}; });
}

/// Those of `to_start_` that have ended, and whose start does not depend on what is not known yet.
void Coordinator::start_absent() {
  if (returning_) return;  // its epoch is not known yet
  std::set<Peer> now;
  std::copy_if(to_start_.begin(), to_start_.end(), std::inserter(now, now.end()),
               [&](Peer place) { return !ending_.contains(place) && may_start(place); });
  for (const Peer place : now) to_start_.erase(place);
  running_.insert(now.begin(), now.end());
  send_to_agents(now, [](std::vector<Peer> roles) { return control::StartRoles{std::move(roles)}; });
}

/// Where all begin anew, a role that was started before that is known would be ended again.
bool Coordinator::may_start(Peer place) const {
  if (!beginning_exists()) return settled_;
  switch (plan_.recovery.keepers) {
    case RecoveryPlan::Keepers::workers:
      return true;
    case RecoveryPlan::Keepers::servers:
      return settled_ || place.role == Role::worker || plan_.replicas;
    default:
      return settled_;
  }
}

void Coordinator::send_to_agents(const std::set<Peer>& places, auto make_message) {
  for (const auto& [place, state] : members_) {
    if (place.role != Role::agent) continue;
    std::vector<Peer> own = roles_of_agent(plan_, place.rank);
    std::erase_if(own, [&](Peer role) { return !places.contains(role); });
    if (!own.empty()) send(state, make_message(std::move(own)));
  }
}

void Coordinator::regroup(const std::string& text) {
  ++epoch_;
  settled_ = anew_ = returning_ = false;
  stop_vote_.reset();
  resumed_.clear();
  symptom_.reset();
  cause_due_ = kNever;
  for (std::uint32_t rank = 0; plan_.colocated && rank < plan_.servers; ++rank) remove({Role::server, rank});
  for (auto& [place, state] : members_) {
    if (!is_role(place.role)) continue;
    state.ready = state.running = state.repeats = state.done = state.reported = state.failed = state.has_state = false;
    state.epoch = epoch_;
    send(state, control::Regroup{epoch_, text});
  }
  enter(Phase::joining, now_ + plan_.join_timeout);
}

void Coordinator::on(State& from, const control::Stuck& message) {
  if (message.epoch < epoch_ || phase_ >= Phase::closing) return;
  from.running = false;  // all regroup once they are back
  if (!returning_) suspect(from, message.text);
}

void Coordinator::on(State& from, const control::Resumed& message) {
  if (message.epoch < epoch_) return;
  resumed_.insert(connections_.at(from.connection));
  if (!lost_at_ || resumed_.size() < expected(Role::worker)) return;
  const double took = seconds(now_ - *lost_at_);
  lost_at_.reset();
  notice(
      fmt::format("epoch {}: going on with step {}, {:.2f} s after the loss was noticed", epoch_, message.step, took));
  record(to_line({{"epoch", epoch_}, {"step", message.step}, {"seconds", took}, {"workers", expected(Role::worker)}}));
}

bool Coordinator::survivors_are_ready() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& m) { return !is_role(m.first.role) || m.second.ready; });
}

/// Without it a process that is started again cannot join those who are left, whatever these have kept.
bool Coordinator::beginning_exists() const {
  return !plan_.recovery.beginning_exists || plan_.recovery.beginning_exists(plan_.job);
}

bool Coordinator::state_is_kept() const {
  if (!to_start_.empty() && !beginning_exists()) return false;
  const auto has = [&](Role role, std::uint32_t rank) {
    const auto found = members_.find({role, rank});
    return found != members_.end() && found->second.has_state;
  };
  if (plan_.recovery.keepers == RecoveryPlan::Keepers::workers) {
    for (std::uint32_t rank = 0; rank < plan_.workers; ++rank)
      if (has(Role::worker, rank)) return true;
    return false;
  }
  if (plan_.recovery.keepers == RecoveryPlan::Keepers::nobody) return false;
  const std::uint32_t shards = plan_.replicas ? plan_.servers / 2 : plan_.servers;
  for (std::uint32_t rank = 0; rank < shards; ++rank)
    if (!has(Role::server, rank) && !(plan_.replicas && has(Role::server, rank + shards))) return false;
  return true;
}

/// All who are left have told what they have.
void Coordinator::settle_epoch() {
  if (!state_is_kept()) return begin_anew();
  settled_ = true;
  start_absent();
}

/// Of a server's two places the one that has its state serves, or else the one that does already. The other follows.
void Coordinator::assign_servers() {
  const std::uint32_t shards = plan_.servers / 2;
  for (std::uint32_t rank = 0; plan_.replicas && rank < shards; ++rank) {
    State* server = &members_.at({Role::server, rank});
    State* follower = &members_.at({Role::server, rank + shards});
    const auto serves = [&](const State& state) { return state.member.peer.rank == rank; };
    const bool already = !serves(*server) && serves(*follower);
    if (server->has_state == follower->has_state ? already : follower->has_state) std::swap(server, follower);
    if (!serves(*server)) notice(fmt::format("the replica of server {} takes its place", rank));
    server->member.peer.rank = rank;
    follower->member.peer.rank = rank + shards;
  }
}

/// Ranks from 0, whoever was given up.
void Coordinator::number_workers() {
  std::uint32_t rank = 0;
  for (auto& [place, state] : members_)
    if (place.role == Role::worker) state.member.peer.rank = rank++;
}

/// All roles are ended, and start from what was saved last.
void Coordinator::begin_anew() {
  if (plan_.agents == 0)
    return fail_job(ErrorKind::peer_lost, "nobody has what the job could go on with, nor can roles be started again");
  std::uint64_t reached = 0;
  for (const auto& [place, state] : members_) reached = std::max(reached, state.step);
  RecoveryPlan::Anew anew;
  try {
    anew = plan_.recovery.begin_anew(expected(Role::worker));
  } catch (const Error& error) {
    return fail_job(error.kind(), error.what());
  }
  plan_.job = anew.job;
  const std::uint64_t again = reached - std::min(reached, anew.step);  // as far as those know who are left
  notice(fmt::format("the job begins again with step {}{}", anew.step,
                     again > 0 ? fmt::format(", {} steps are repeated", again) : ""));
  ++epoch_;
  stop_vote_.reset();
  settled_ = anew_ = true;
  for (std::uint32_t rank = 0; plan_.colocated && rank < plan_.servers; ++rank) remove({Role::server, rank});
  for (const Peer place : places()) {
    remove(place);
    to_start_.insert(place);
  }
  enter(Phase::joining, now_ + plan_.join_timeout);
  start_absent();
}

std::vector<Peer> Coordinator::places() const {
  std::vector<Peer> all;
  for (std::uint32_t agent = 0; agent < plan_.agents; ++agent) {
    const auto own = roles_of_agent(plan_, agent);
    std::copy_if(own.begin(), own.end(), std::back_inserter(all),
                 [&](Peer place) { return !given_up_.contains(place); });
  }
  return all;
}

/// A member that had joined says where it was: to the same coordinator over a new connection, or to a second one.
void Coordinator::come_back(const Connection& from, const control::Hello& message) {
  const Peer place{message.role, message.rank.value_or(0)};
  const auto found = members_.find(place);
  const bool known = found != members_.end() && found->second.member.pid == message.pid;
  const auto is_taken = [&](const auto& m) {
    return m.first != place && message.running && m.second.running && m.second.member.peer == message.duty;
  };
  if (is_role(place.role) && ending_.contains(plan_.colocated ? Peer{Role::worker, place.rank} : place)) return;
  if (place.role == Role::coordinator || place.rank >= planned(place.role) || message.duty.role != place.role ||
      message.duty.rank >= planned(place.role) || std::any_of(members_.begin(), members_.end(), is_taken))
    return refuse(from, ErrorKind::protocol,
                  fmt::format("{} as {} has no place here", to_string(place), to_string(message.duty)));
  if (result_.failure || (!known && !(returning_ && found == members_.end())))
    return refuse(from, ErrorKind::peer_lost, "the job has gone on without it");
  if (known) connections_.erase(found->second.connection);
  connections_[from] = place;
  State& state = members_[place];
  state.connection = from;
  state.heard = now_;
  state.repeats = true;
  send(state, control::Welcome{place.rank, plan_.job, plan_.heartbeat_interval, plan_.heartbeat_timeout, epoch_,
                               plan_.recovery.patience});
  if (known) return tell_again(state, message);
  state.member = {message.duty, message.host_id, message.hostname, message.pid, {}};
  state.processor = message.processor;
  state.asks = message.asks;
  state.epoch = *message.epoch;
  state.ready = state.running = message.running;
  epoch_ = std::max(epoch_, state.epoch);
  if (place.role != Role::agent) return;
  const auto roles = roles_of_agent(plan_, place.rank);
  running_.insert(roles.begin(), roles.end());
}

/// What was sent over the connection before this one may not have arrived.
void Coordinator::tell_again(State& state, const control::Hello& message) {
  const Peer place = connections_.at(state.connection);
  if (place.role == Role::agent) {
    std::set<Peer> absent;
    std::copy_if(running_.begin(), running_.end(), std::inserter(absent, absent.end()),
                 [&](Peer role) { return !members_.contains(role) && !ending_.contains(role); });
    send_to_agents(absent, [](std::vector<Peer> roles) { return control::StartRoles{std::move(roles)}; });
    send_to_agents(ending_, [](std::vector<Peer> roles) { return control::EndRoles{std::move(roles)}; });
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

/// All are back who will come.
void Coordinator::end_returns() {
  returning_ = false;
  const bool over = std::any_of(members_.begin(), members_.end(),
                                [](const auto& m) { return is_role(m.first.role) && m.second.exited; });
  for (const Peer place : places())
    if (over && !members_.contains(place)) had_ended({.role = place});  // or was lost: it is not needed
  const auto count = [&](auto&& holds) {
    return std::count_if(members_.begin(), members_.end(),
                         [&](const auto& m) { return is_role(m.first.role) && holds(m.second); });
  };
  const auto running =
      count([&](const State& state) { return state.running && (state.epoch == epoch_ || state.exited); });
  if (running == 0 && epoch_ == 0) {  // it had not begun
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
      if (!members_.contains(place) && !to_start_.contains(place))
        lose(place, ErrorKind::peer_lost, fmt::format("{} did not come back to the coordinator", to_string(place)));
    if (phase_ == Phase::running) regroup("the coordinator was lost");
  }
  start_absent();
}

void Coordinator::record(std::string line) {
  const auto bytes = std::as_bytes(std::span(line));
  actions_.events.push_back(
      {{Role::coordinator, 0}, {}, control::Append{"recoveries.jsonl", {bytes.begin(), bytes.end()}}});
}

void Coordinator::note_loss(const std::string& text) {
  if (!lost_at_) lost_at_ = now_;
  record(to_line({{"lost", text}, {"epoch", epoch_}, {"restarts", restarts_}}));
  notice(text);
}

/// Workers compute gradients with kernels that are chosen for their processor, and these add up in different orders.
void Coordinator::compare_processors() {
  std::map<std::string, const Member*> first_with;
  for (const auto& [place, state] : members_)
    if (place.role == Role::worker) first_with.try_emplace(state.processor, &state.member);
  if (first_with.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [processor, member] : first_with)
    parts.push_back(fmt::format("{} has {}", to_string(*member), processor));
  std::string text = fmt::format(
      "workers have different processors, so another placement of the same job may give other "
      "bits: {}",
      fmt::join(parts, "; "));
  if (text != processors_) notice(processors_ = std::move(text));
}

void Coordinator::notice(std::string text) {
  for (const auto& [place, state] : members_)
    if (place.role == Role::agent) send(state, control::Notice{text});
  actions_.events.push_back({{Role::coordinator, 0}, {}, control::Notice{std::move(text)}});
}

}  // namespace psring::net
