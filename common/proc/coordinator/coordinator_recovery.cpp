// How a job continues after a loss: restarts, workers that are given up, and a new epoch of the membership.
#include <algorithm>
#include <utility>

#include <psring/common/base/text/json.h>
#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {
namespace {

/// Replaces invalid UTF-8: the text may hold a process's own output, in any encoding.
std::string to_line(const Json& json) { return json.dump_any_bytes() + "\n"; }

}  // namespace

/// Waits for a better cause.
void Coordinator::suspect(const State& from, const std::string& text) {
  if (symptom_ || phase_ >= Phase::closing) return;
  symptom_ = Symptom{.error = Error(ErrorKind::peer_lost, text),
                     .place = connections_.at(from.connection),
                     .graced = now_ + plan_.cause_grace};
}

/// Returns whether the lost member is still unknown. A member that has not been heard since may be the lost one: its
/// agent, or its silence, will name it.
bool Coordinator::symptom_is_open() const {
  const Moment graced = symptom_->graced;
  return now_ < graced ||
         (now_ < graced + plan_.heartbeat_timeout && std::any_of(members_.begin(), members_.end(), [&](const auto& m) {
            const State& state = m.second;
            return !state.said_bye && !state.exited && !state.failed && state.heard < graced;
          }));
}

/// The job has lost a role, a host, or (with the coordinator as `place`) a process whose name is unknown. Returns false
/// if the job cannot continue; `text` may then say why.
bool Coordinator::continue_without(Peer place, ErrorKind kind, std::string& text) {
  const RecoveryPlan& plan = plan_.recovery;
  if (kind != ErrorKind::peer_lost) return false;
  if (!plan.possible()) {
    if (plan_.replicas && place.role == Role::server)
      text += "; no follower or server may take its place without --max-restarts";
    return false;
  }
  if (place.role == Role::agent) return continue_without_host(place, text);
  if (phase_ >= Phase::finishing && is_role(place.role)) return finish_without(place);
  if (restarts_ == plan.max_restarts && !may_give_up({place})) {
    if (plan.max_restarts > 0) text += fmt::format("; --max-restarts {}: no more", plan.max_restarts);
    if (plan.min_workers > 0 && place.role == Role::worker)
      text += fmt::format("; --elastic {}:{}: no fewer", plan.min_workers, plan_.workers);
    return false;
  }
  const bool again = restarts_ < plan.max_restarts;
  if (again) ++restarts_;
  note_loss(text);
  place = plan_.process_of(place);
  if (const std::optional<Peer> guest = plan_.guest_of(place)) remove(*guest);
  if (!again) {
    give_up({place});
  } else if (is_role(place.role)) {
    remove(place);
    if (plan_.agents > 0) processes_.want(place);
    if (plan_.agents == 0) notice(fmt::format("waiting for another process to take the place of {}", to_string(place)));
  }
  recover(text);
  return true;
}

void Coordinator::recover(const std::string& text) {
  if (phase_ == Phase::running) {
    regroup(text);
  } else if (epoch_ > 0 && !anew_) {
    settled_ = false;  // the lost member may have kept the state
  }
  start_wanted();
}

/// Nobody can start the host's roles again.
bool Coordinator::continue_without_host(Peer agent, const std::string& text) {
  const std::vector<Peer> own = roles_of_agent(plan_, agent.rank);
  std::set<Peer> lost(own.begin(), own.end());
  std::erase_if(lost, [&](Peer place) { return given_up_.contains(place); });
  if ((plan_.reserve_agent_0 && agent.rank == 0) || !may_give_up(lost)) return false;
  note_loss(text);
  for (const Peer place : lost) processes_.forget(place);
  given_up_.insert(agent);
  drop(agent);
  if (phase_ >= Phase::finishing) {
    for (const Peer place : lost) finish_without(place);
    return true;
  }
  give_up(lost);
  recover(text);
  return true;
}

/// The join timeout has passed. Continues if all missing members are workers, or agents of workers alone, that the job
/// may give up.
bool Coordinator::continue_with_present() {
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
  recover(text);
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
    processes_.give_up(place);
  }
  given_up_.insert(places.begin(), places.end());
  Json ranks;
  for (const Peer place : given_up_) ranks[std::string(to_string(place.role))].push_back(place.rank);
  record(to_line({{"workers", expected(Role::worker)}, {"epoch", epoch_}, {"given_up", ranks}}));
  notice(fmt::format("going on with {} of {} workers, which share the global batch", expected(Role::worker),
                     plan_.workers));
}

/// The workers are done, so the loss costs only the role's report.
bool Coordinator::finish_without(Peer place) {
  const auto found = members_.find(place);
  if (found == members_.end()) return false;
  if (std::exchange(found->second.said_bye, true)) return true;
  found->second.reported = true;
  found->second.exited = !processes_.running(place);
  if (!found->second.exited) send_end({place});
  note_loss(fmt::format("{} was lost after the workers were done", to_string(found->second.member)));
  return true;
}

/// Removes the place from the members, and ends its process.
void Coordinator::remove(Peer place) {
  drop(place);
  if (processes_.end(place)) send_end({place});
}

/// Colocated servers begin each epoch anew, within their workers' processes.
void Coordinator::remove_colocated_servers() {
  for (std::uint32_t rank = plan_.standalone(); rank < plan_.servers; ++rank) remove({Role::server, rank});
}

/// Removes the place from the members. The process of the place may continue to run.
void Coordinator::drop(Peer place) {
  const auto found = members_.find(place);
  if (found == members_.end()) return;
  former_[found->second.connection] = process_of(place, found->second);
  connections_.erase(found->second.connection);
  members_.erase(found);
}

void Coordinator::start_wanted() {
  if (returning_) return;  // the epoch is not known yet
  send_start(processes_.start([this](Peer place) { return may_start(place); }));
}

/// Returns false while it is open whether all roles begin anew: then a role that starts now would be ended again.
bool Coordinator::may_start(Peer place) const {
  if (!beginning_exists()) return settled_;
  switch (plan_.recovery.keepers) {
    case RecoveryPlan::Keepers::workers:
      return true;
    case RecoveryPlan::Keepers::servers:
    case RecoveryPlan::Keepers::both:
      return settled_ || place.role == Role::worker || plan_.replicas;
    default:
      return settled_;
  }
}

/// Sends each agent an Order with the roles among `places` that are its own.
template <class Order>
void Coordinator::send_to_agents(const std::set<Peer>& places) {
  for (const auto& [place, state] : members_) {
    if (place.role != Role::agent) continue;
    std::vector<Peer> own = roles_of_agent(plan_, place.rank);
    std::erase_if(own, [&](Peer role) { return !places.contains(role); });
    if (!own.empty()) send(state, Order{std::move(own)});
  }
}

void Coordinator::send_start(const std::set<Peer>& places) { send_to_agents<control::StartRoles>(places); }
void Coordinator::send_end(const std::set<Peer>& places) { send_to_agents<control::EndRoles>(places); }

void Coordinator::regroup(const std::string& text) {
  ++epoch_;
  settled_ = anew_ = returning_ = false;
  stop_vote_.reset();
  resumed_.clear();
  symptom_.reset();
  remove_colocated_servers();
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
  from.running = false;  // while members come back: all regroup once they are back
  if (!returning_) suspect(from, fmt::format("{}: {}", to_string(from.member), message.text));
}

void Coordinator::on(State& from, const control::Resumed& message) {
  if (message.epoch < epoch_) return;
  const bool is_repeated = !resumed_.insert(connections_.at(from.connection)).second;
  if (is_repeated || !lost_at_ || resumed_.size() < expected(Role::worker)) return;
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

/// A process that is started again needs the beginning to join the survivors, whatever state they have kept.
bool Coordinator::beginning_exists() const {
  return !plan_.recovery.beginning_exists || plan_.recovery.beginning_exists(plan_.job);
}

bool Coordinator::state_is_kept() const {
  if (processes_.any_wanted() && !beginning_exists()) return false;
  const auto has = [&](Role role, std::uint32_t rank) {
    const auto found = members_.find({role, rank});
    return found != members_.end() && found->second.has_state;
  };
  using Keepers = RecoveryPlan::Keepers;
  if (plan_.recovery.keepers == Keepers::nobody) return false;
  if (plan_.recovery.keepers != Keepers::servers) {
    bool any = false;
    for (std::uint32_t rank = 0; rank < plan_.workers; ++rank) any = any || has(Role::worker, rank);
    if (!any || plan_.recovery.keepers == Keepers::workers) return any;
  }
  const std::uint32_t shards = plan_.replicas ? plan_.servers / 2 : plan_.servers;
  for (std::uint32_t rank = 0; rank < shards; ++rank)
    if (!has(Role::server, rank) && !(plan_.replicas && has(Role::server, rank + shards))) return false;
  return true;
}

/// Called when all survivors have reported their state: decides from which state the epoch continues.
void Coordinator::settle_epoch() {
  if (!state_is_kept()) return begin_anew();
  settled_ = true;
  start_wanted();
}

/// Chooses the leader of each shard between its two places: the place that has the state, or else the current leader.
/// The other place is the follower.
void Coordinator::assign_servers() {
  const std::uint32_t shards = plan_.servers / 2;
  for (std::uint32_t rank = 0; plan_.replicas && rank < shards; ++rank) {
    State* leader = &members_.at({Role::server, rank});
    State* follower = &members_.at({Role::server, rank + shards});
    const auto leads = [&](const State& state) { return state.member.peer.rank == rank; };
    const bool swapped = !leads(*leader) && leads(*follower);
    if (leader->has_state == follower->has_state ? swapped : follower->has_state) std::swap(leader, follower);
    if (!leads(*leader)) notice(fmt::format("the replica of server {} takes its place", rank));
    leader->member.peer.rank = rank;
    follower->member.peer.rank = rank + shards;
  }
}

/// Workers get ranks from 0, in the order of their places, whichever places were given up.
void Coordinator::number_workers() {
  std::uint32_t rank = 0;
  for (auto& [place, state] : members_)
    if (place.role == Role::worker) state.member.peer.rank = rank++;
}

/// Ends all roles, and starts them from the last checkpoint.
void Coordinator::begin_anew() {
  if (plan_.agents == 0 && plan_.recovery.max_restarts == 0)
    return fail_job(ErrorKind::peer_lost, "no member keeps the state of the job, nor can roles be started again");
  std::uint64_t reached = 0;
  for (const auto& [place, state] : members_) reached = std::max(reached, state.step);
  RecoveryPlan::Anew anew;
  try {
    anew = plan_.recovery.begin_anew(expected(Role::worker));
  } catch (const Error& error) {
    return fail_job(error.kind(), error.what());
  }
  plan_.job = anew.job;
  const std::uint64_t again = reached - std::min(reached, anew.step);  // as far as the survivors know
  notice(fmt::format("the job begins again with step {}{}", anew.step,
                     again > 0 ? fmt::format(", {} steps are repeated", again) : ""));
  ++epoch_;
  stop_vote_.reset();
  settled_ = anew_ = true;
  remove_colocated_servers();
  for (const Peer place : places()) {
    remove(place);
    processes_.want(place);
  }
  if (plan_.agents == 0)
    end_processes(fmt::format("the job begins again with step {}, with other processes", anew.step));
  enter(Phase::joining, now_ + plan_.join_timeout);
  start_wanted();
}

/// Ends the processes of all roles, which no agent has started: other processes take their places.
void Coordinator::end_processes(const std::string& text) {
  for (const auto& [place, state] : members_)
    send(state, control::Abort{ErrorKind::peer_lost, text, 0, {Role::coordinator, 0}});
  while (!members_.empty()) remove(members_.begin()->first);
}

void Coordinator::note_loss(const std::string& text) {
  if (!lost_at_) lost_at_ = now_;
  record(to_line({{"lost", text}, {"epoch", epoch_}, {"restarts", restarts_}}));
  notice(text);
}

}  // namespace psring::net
