// How members join a job: ranks and refusals, readiness, and the list of members with which an epoch begins.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include <psring/common/base/text/text.h>
#include <psring/common/proc/coordinator/coordinator.h>

namespace psring::net {
void Coordinator::join(const Connection& from, const control::Hello& message) {
  if (waits(from, message)) return;
  // An agent that stays after a job asks for the next job. It asks again when this coordinator closes the connection.
  if (plan_.more && phase_ >= Phase::closing && message.role == Role::agent) return;
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
  told_missing_ = now_;
  welcome(state, place, from);
  compare_builds(message, state.member);
  if (plan_.agents == 0) actions_.joined.push_back({from, message.host_id, message.pid_namespace, message.pid});
  if (place.role != Role::agent) return;
  const std::vector<Peer> roles = roles_of_agent(plan_, place.rank);
  processes_.started(roles);
  send(state, control::StartRoles{roles});
}

/// Returns true if the process has to wait, and tells it why. Without agents, a process asks for its place by itself:
/// maybe before the place's previous process counts as lost, or before it is known whether all roles begin anew, which
/// would end the process again.
bool Coordinator::waits(const Connection& from, const control::Hello& message) {
  if (!message.rank) return false;
  const Peer place{message.role, *message.rank};
  const WaitsFor what = awaited_at(place);
  if (what == WaitsFor::nothing) {
    waiting_.erase(place);
    return false;
  }
  Waiting& waiting = waiting_[place];
  if (!waiting.from.empty() && waiting.from != from)
    refuse(waiting.from, ErrorKind::usage,
           fmt::format("{}: another process ({}:{}) asks for this rank, too", to_string(place), message.hostname,
                       message.pid));
  if (waiting.from != from || waiting.what != what)
    actions_.messages.push_back({from, control::Wait{text_of(what, place)}});
  waiting = {from, message, what};
  return true;
}

Coordinator::WaitsFor Coordinator::awaited_at(Peer place) const {
  if (plan_.agents > 0 || plan_.recovery.max_restarts == 0 || phase_ >= Phase::closing) return WaitsFor::nothing;
  if (members_.contains(place)) return WaitsFor::holder;
  const bool is_open = phase_ == Phase::joining && epoch_ > 0 && !may_start(place);
  return is_open ? WaitsFor::decision : WaitsFor::nothing;
}

std::string Coordinator::text_of(WaitsFor what, Peer place) const {
  if (what == WaitsFor::holder)
    return fmt::format(
        "{} has joined already: waiting for its next message, at which this process is refused, or for {:g} s of "
        "silence, after which this process takes the place",
        describe_holder(place), seconds(plan_.heartbeat_timeout));
  return fmt::format("waiting for the other members to tell which state they keep, before a new {} may join",
                     to_string(place));
}

/// The holder of a place lives: a process that waits for the place is refused.
void Coordinator::refuse_waiting(Peer place) {
  const auto found = waiting_.find(place);
  if (found == waiting_.end()) return;
  refuse(found->second.from, ErrorKind::usage,
         fmt::format("{} has joined already, and lives; ask for another --rank, or for none", describe_holder(place)));
  waiting_.erase(found);
}

/// "server 0 (host:4711), last heard 0.4 s ago,"
std::string Coordinator::describe_holder(Peer place) const {
  const State& holder = members_.at(place);
  return fmt::format("{}, last heard {:.1f} s ago,", to_string(holder.member), seconds(now_ - holder.heard));
}

/// Lets processes join whose places have become free.
void Coordinator::join_waiting() {
  for (const auto& [place, waiting] : std::map(waiting_)) join(waiting.from, waiting.hello);
}

/// The reason why a new member may not join; nothing if it may.
std::optional<control::Refused> Coordinator::objection(const control::Hello& message) const {
  if (message.role == Role::coordinator) return control::Refused{ErrorKind::protocol, "a job has one coordinator"};
  if (result_.failure)
    return control::Refused{result_.failure->kind(), fmt::format("the job has failed: {}", result_.failure->what())};
  if (phase_ >= Phase::closing) return control::Refused{ErrorKind::usage, "the job has ended"};
  const bool other_wire = message.wire != wire_version();
  if (other_wire || (plan_.same_build && message.build != plan_.build))
    return control::Refused{
        ErrorKind::data, fmt::format("{}{}: start all processes of a job from one build", difference_of_builds(message),
                                     other_wire ? "" : " (--same-build)")};
  const std::uint32_t most = plan_.count(message.role);
  if (most == 0)
    return control::Refused{ErrorKind::usage, message.role == Role::agent
                                                  ? "the job's roles are started by hand, not by agents"
                                                  : fmt::format("the job has no {}", to_string(message.role))};
  const bool no_agent = std::ranges::none_of(joined_, [](const auto& life) { return life.first.role == Role::agent; });
  if (plan_.agents > 0 && no_agent && message.role != Role::agent && !message.rank)  // agents tell each role its rank
    return control::Refused{ErrorKind::usage,
                            "the job's roles are started by agents, not by hand: start psring agent on each host"};
  if (message.rank && *message.rank >= most)
    return control::Refused{ErrorKind::usage,
                            fmt::format("{} {}: the job has {}, ranks from 0", to_string(message.role), *message.rank,
                                        count_of(most, to_string(message.role)))};
  if (message.rank && given_up_.contains({message.role, *message.rank}))
    return control::Refused{ErrorKind::peer_lost, "the job continues without this process"};
  if (free_rank(message)) return std::nullopt;
  if (!message.rank) {
    const std::uint32_t ranks = message.role == Role::server ? plan_.standalone() : most;
    if (ranks == 0) return control::Refused{ErrorKind::usage, "the job's servers run in its workers' processes"};
    return control::Refused{
        ErrorKind::usage,
        ranks == most ? fmt::format("all {} of the job have joined already", count_of(most, to_string(message.role)))
        : ranks == 1  ? "the only standalone server has joined already"
                      : fmt::format("all {} standalone servers have joined already", ranks)};
  }
  return control::Refused{ErrorKind::usage, fmt::format("{} has joined already; ask for another --rank, or for none",
                                                        describe_holder({message.role, *message.rank}))};
}

void Coordinator::welcome(State& state, Peer place, const Connection& from) {
  state.connection = from;
  state.heard = now_;
  connections_[from] = place;
  send(state, control::Welcome{place.rank, plan_.job, plan_.heartbeat_interval, plan_.heartbeat_timeout, epoch_,
                               plan_.recovery.patience, plan_.more});
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
  if (message.epoch < epoch_) return;  // the member does not know this epoch yet
  if ((from.ready && !from.repeats) || !is_role(from.member.peer.role) || message.epoch > epoch_)
    return fail_job(ErrorKind::protocol, fmt::format("{} said 'ready' out of turn", to_string(from.member)));
  from.member.addresses = std::move(message.addresses);
  from.step = message.step;
  from.has_state = message.has_state;
  from.files = std::move(message.files);
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
      if (absent > 0)
        parts.push_back(count_of(absent, to_string(role)) + (role == Role::server ? missing_servers() : ""));
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

/// With replicas: which servers and followers have joined and which have not, in parentheses; otherwise "".
std::string Coordinator::missing_servers() const {
  if (!plan_.replicas) return "";
  std::vector<std::uint32_t> primaries;
  std::vector<std::uint32_t> absent;
  std::vector<std::uint32_t> followers;  // that are absent, by the rank of their primary
  std::size_t joined = 0;
  const std::uint32_t shards = plan_.servers / 2;
  for (std::uint32_t rank = 0; rank < plan_.servers; ++rank) {
    const bool here = members_.contains({Role::server, rank});
    joined += here ? 1 : 0;
    if (rank >= shards && !here) followers.push_back(rank - shards);
    if (rank < shards) (here ? primaries : absent).push_back(rank);
  }
  std::vector<std::string> awaited;
  if (!absent.empty()) awaited.push_back(fmt::format("primaries {}", fmt::join(absent, ", ")));
  if (!followers.empty()) awaited.push_back(fmt::format("followers of {}", fmt::join(followers, ", ")));
  return fmt::format(" ({} of {} servers: {}; waiting for {})", joined, plan_.servers,
                     primaries.empty() ? "no primary" : fmt::format("primaries {}", fmt::join(primaries, ", ")),
                     fmt::join(awaited, " and "));
}

/// Prints which members are missing if none has joined for a while.
void Coordinator::tell_missing() {
  const Nanoseconds patience = std::max<Nanoseconds>(std::chrono::seconds(5), plan_.join_timeout / 6);
  if (phase_ != Phase::joining || returning_ || plan_.agents > 0 || now_ - told_missing_ < patience) return;
  told_missing_ = now_;
  if (const std::string text = missing(); !text.empty()) notice(fmt::format("still waiting for {}", text));
}

/// Says how the files of two hosts differ; "" if all hold the same.
std::string Coordinator::difference_of_files() const {
  std::map<std::string, const State*> first;
  for (const auto& [place, state] : members_)
    for (const auto& [option, holds] : state.files) {
      const State& other = *first.try_emplace(option, &state).first->second;
      if (const std::string& held = other.files.at(option); held != holds)
        return fmt::format("{}: the file differs between hosts: {} has {}, {} has {}", option, to_string(other.member),
                           held, to_string(state.member), holds);
    }
  return "";
}

/// All members are ready: each gets its duty and the list of all. The job fails if hosts hold different files.
void Coordinator::begin_epoch() {
  if (std::string difference = difference_of_files(); !difference.empty())
    return fail_job(ErrorKind::data, std::move(difference));
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

}  // namespace psring::net
