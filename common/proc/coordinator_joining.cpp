// How members join a job: ranks and refusals, readiness, and the list of members with which an epoch begins.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include <psring/common/proc/coordinator.h>

namespace psring::net {
namespace {

std::string count_of(std::size_t count, Role role) {
  return fmt::format("{} {}{}", count, to_string(role), count == 1 ? "" : "s");
}

}  // namespace

void Coordinator::join(const Connection& from, const control::Hello& message) {
  if (waits(from, message)) return;
  if (std::optional<control::Refused> refusal = objection(message))
    return refuse(from, refusal->kind, std::move(refusal->text));
  const Peer place{message.role, *free_rank(message)};
  if (processes_.has_ended(place, message.pid)) return;
  // A process that is being ended does not join either: the process that is started after it does.
  if (still_ends(place)) return;
  State& state = members_[place];
  state.member = {place, message.host_id, message.hostname, message.pid, {}};
  state.processor = message.processor;
  state.asks = message.asks;
  state.epoch = epoch_;
  state.life = joined_[place]++;
  welcome(state, place, from);
  if (place.role != Role::agent) return;
  compare_builds(message, state.member);
  const std::vector<Peer> roles = roles_of_agent(plan_, place.rank);
  processes_.started(roles);
  send(state, control::StartRoles{roles});
}

/// Returns true if the process has to wait. Without agents, a process asks for its place by itself: maybe before the
/// place's previous process counts as lost, or before it is known whether all roles begin anew, which would end the
/// process again.
bool Coordinator::waits(const Connection& from, const control::Hello& message) {
  if (plan_.agents > 0 || plan_.recovery.max_restarts == 0 || phase_ >= Phase::closing || !message.rank) return false;
  const Peer place{message.role, *message.rank};
  const bool is_early = phase_ == Phase::joining && epoch_ > 0 && !may_start(place);
  if (!is_early && !members_.contains(place)) return false;
  waiting_.insert_or_assign(place, std::pair(from, message));
  return true;
}

/// Lets processes join whose places have become free.
void Coordinator::join_waiting() {
  for (auto& [place, waiting] : std::exchange(waiting_, {})) join(waiting.first, waiting.second);
}

/// The reason why a new member may not join; nothing if it may.
std::optional<control::Refused> Coordinator::objection(const control::Hello& message) const {
  if (message.role == Role::coordinator) return control::Refused{ErrorKind::protocol, "a job has one coordinator"};
  if (result_.failure)
    return control::Refused{result_.failure->kind(), fmt::format("the job has failed: {}", result_.failure->what())};
  if (phase_ >= Phase::closing) return control::Refused{ErrorKind::usage, "the job has ended"};
  const std::uint32_t most = plan_.count(message.role);
  if (most == 0)
    return control::Refused{ErrorKind::usage, message.role == Role::agent
                                                  ? "the job's roles are started by hand, not by agents"
                                                  : fmt::format("the job has no {}", to_string(message.role))};
  if (message.rank && *message.rank >= most)
    return control::Refused{ErrorKind::usage,
                            fmt::format("{} {}: the job has {}, ranks from 0", to_string(message.role), *message.rank,
                                        count_of(most, message.role))};
  if (message.rank && given_up_.contains({message.role, *message.rank}))
    return control::Refused{ErrorKind::peer_lost, "the job continues without this process"};
  if (free_rank(message)) return std::nullopt;
  if (!message.rank) {
    const std::uint32_t ranks = message.role == Role::server ? plan_.standalone() : most;
    if (ranks == 0) return control::Refused{ErrorKind::usage, "the job's servers run in its workers' processes"};
    return control::Refused{ErrorKind::usage,
                            ranks == most
                                ? fmt::format("all {} of the job have joined already", count_of(most, message.role))
                            : ranks == 1 ? "the only standalone server has joined already"
                                         : fmt::format("all {} standalone servers have joined already", ranks)};
  }
  const Member& holder = members_.at({message.role, *message.rank}).member;
  return control::Refused{ErrorKind::usage, fmt::format("{} has joined already", to_string(holder))};
}

void Coordinator::welcome(State& state, Peer place, const Connection& from) {
  state.connection = from;
  state.heard = now_;
  connections_[from] = place;
  send(state, control::Welcome{place.rank, plan_.job, plan_.heartbeat_interval, plan_.heartbeat_timeout, epoch_,
                               plan_.recovery.patience});
}

void Coordinator::refuse(const Connection& to, ErrorKind kind, std::string text) {
  actions_.messages.push_back({to, control::Refused{kind, std::move(text)}});
}

/// The rank that the member asks for, or else the lowest; nothing if it is taken.
std::optional<std::uint32_t> Coordinator::free_rank(const control::Hello& message) const {
  const auto is_free = [&](std::uint32_t rank) {
    return !members_.contains({message.role, rank}) && !given_up_.contains({message.role, rank});
  };
  if (message.rank) return is_free(*message.rank) ? message.rank : std::nullopt;
  const std::uint32_t first = message.role == Role::agent && plan_.reserve_agent_0 ? 1 : 0;
  const bool other_wire = message.wire != wire_version();
  if (other_wire || (plan_.same_build && message.build != plan_.build))
    return control::Refused{
        ErrorKind::data, fmt::format("{}{}: start all processes of a job from one build", difference_of_builds(message),
                                     other_wire ? "" : " (--same-build)")};
  const std::uint32_t last = message.role == Role::server ? plan_.standalone() : plan_.count(message.role);
  for (std::uint32_t rank = first; rank < last; ++rank)
    if (is_free(rank)) return rank;
  return std::nullopt;
}

/// Is the place's previous process still being ended? A colocated server ends with the process of its worker.
bool Coordinator::still_ends(Peer place) const {
  return is_role(place.role) && processes_.ending(plan_.process_of(place));
}

void Coordinator::on(State& from, control::Ready&& message) {
  if (message.epoch < epoch_) return;  // the member has not heard of this epoch yet
  if ((from.ready && !from.repeats) || !is_role(from.member.peer.role) || message.epoch > epoch_)
    return fail_job(ErrorKind::protocol, fmt::format("{} said 'ready' out of turn", to_string(from.member)));
  from.member.addresses = std::move(message.addresses);
  from.step = message.step;
  from.has_state = message.has_state;
  from.ready = true;
}

/// The members that the phase waits for: "1 worker, 2 servers and worker 1 (host:4711) to be ready"; "" for nobody.
std::string Coordinator::missing() const {
  std::vector<std::string> parts;
  if (phase_ == Phase::joining) {
    for (const Role role : {Role::agent, Role::worker, Role::server}) {
      const auto joined =
          std::count_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first.role == role; });
      const std::size_t absent = expected(role) - static_cast<std::size_t>(joined);
      if (absent > 0) parts.push_back(count_of(absent, role));
      if (role == Role::agent && absent > 0) break;  // the absent roles are the roles of the absent agents
    }
  }
  std::vector<std::string> late;
  for (const auto& [place, state] : members_) {
    if (!is_role(place.role)) continue;
    if (phase_ == Phase::joining && !state.ready) late.push_back(to_string(state.member) + " to be ready");
    if (phase_ == Phase::leaving && !has_left(state)) late.push_back(to_string(state.member));
  }
  if (late.size() > 3) late = {late[0], late[1], fmt::format("{} more", late.size() - 2)};
  parts.insert(parts.end(), late.begin(), late.end());
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

/// All members are ready: each gets its duty and the list of all.
void Coordinator::begin_epoch() {
  assign_servers();
  number_workers();
  control::Members list = list_of_members();
  for (const auto& [place, state] : members_) {
    list.self = state.member.peer;
    send(state, list);
  }
  compare_processors();
}

control::Members Coordinator::list_of_members() const {
  control::Members list{{}, epoch_, {}};
  for (const auto& [place, state] : members_)
    if (is_role(place.role)) list.members.push_back(state.member);
  std::sort(list.members.begin(), list.members.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
  return list;
}

/// Warns if workers have different processors: kernels are chosen for a processor, and add up in different orders.
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

}  // namespace psring::net
std::string Coordinator::difference_of_builds(const control::Hello& message) const {
  return fmt::format(
      "another build than the coordinator's: {}, wire version {}; the coordinator is {}, wire version {}",
      to_string(message.build), message.wire, to_string(plan_.build), wire_version());
}

/// Warns once if a member is of another build: it may compute or send something else.
void Coordinator::compare_builds(const control::Hello& message, const Member& member) {
  if (message.build == plan_.build || std::exchange(told_builds_, true)) return;
  notice(fmt::format("warning: {} is {}; --same-build refuses it", to_string(member), difference_of_builds(message)));
}

