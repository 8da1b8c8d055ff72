#include <algorithm>
#include <utility>
#include <variant>

#include <signal.h>

#include <psring/common/base/text/error.h>
#include <psring/view/step/simulated_control.h>

namespace psring::view {
namespace {

namespace control = net::control;
using namespace std::chrono_literals;
using net::ControlMessage;
using net::Coordinator;
using net::Role;

constexpr const char* kAgent = "agent";

net::RecoveryPlan recovery_of(const JobOptions& job, std::function<net::RecoveryPlan::Anew(std::uint32_t)> begin_anew) {
  using Keepers = net::RecoveryPlan::Keepers;
  return {.max_restarts = static_cast<std::uint32_t>(job.max_restarts),
          .min_workers = static_cast<std::uint32_t>(job.min_workers),
          .keepers = job.recovery == "servers"   ? Keepers::servers
                     : job.recovery == "workers" ? Keepers::workers
                     : job.recovery == "both"    ? Keepers::both
                                                 : Keepers::nobody,
          .begin_anew = std::move(begin_anew)};
}

/// No process is silent here: the agent reports each end.
net::JobPlan plan_of(const JobOptions& job, std::function<net::RecoveryPlan::Anew(std::uint32_t)> begin_anew) {
  return {.workers = static_cast<std::uint32_t>(job.workers),
          .servers = static_cast<std::uint32_t>(job.servers * (1 + job.replicas)),
          .replicas = job.replicas > 0,
          .agents = 1,
          .job = "{}",
          .join_timeout = from_seconds(job.join_timeout),
          .heartbeat_interval = 1h,
          .heartbeat_timeout = 2h,
          .leave_timeout = 1min,
          .recovery = recovery_of(job, std::move(begin_anew))};
}

}  // namespace

SimulatedControl::SimulatedControl(net::SimulatedNetwork& network, const std::vector<net::Peer>& peers,
                                   std::size_t place, const JobOptions& job, Delays delays)
    : network_(network),
      peers_(peers),
      place_(place),
      delays_(delays),
      coordinator_(plan_of(job,
                           [this](std::uint32_t) {
                             ++begun_anew_;
                             return net::RecoveryPlan::Anew{"{}", 0};
                           }),
                   Moment{}) {
  to_coordinator(kAgent,
                 control::Hello{.role = Role::agent, .rank = 0, .host_id = {}, .hostname = "simulated", .pid = 1});
}

void SimulatedControl::run() {
  net::Transport& transport = network_.transport(place_);
  while (!coordinator_.ended()) {
    while (!due_.empty() && due_.begin()->first <= now()) {
      const auto action = std::move(due_.extract(due_.begin()).mapped());
      action();
    }
    carry_out(coordinator_.tick(now()));
    const Moment next = std::min(coordinator_.next_tick(), due_.empty() ? kNever : due_.begin()->first);
    try {
      if (!coordinator_.ended() && next > now()) transport.receive(next);
    } catch (const Error& error) {  // no peer is linked to the coordinator
      if (error.kind() != ErrorKind::peer_lost) throw;
    }
  }
  ended_ = true;
  for (std::size_t place = 0; place < peers_.size(); ++place) network_.transport(place).wake();
}

bool SimulatedControl::await_start(std::size_t place) {
  net::Transport& transport = network_.transport(place);
  while (!to_start_.contains(place) && !ended_) {
    try {
      transport.receive(kNever);
    } catch (const Error& error) {
      if (network_.dead(place)) throw Died();
      if (error.kind() != ErrorKind::peer_lost) throw;
    }
  }
  if (ended_) return false;
  to_start_.erase(place);
  processes_[place] = {pid(place)};
  return true;
}

bool SimulatedControl::exited(std::size_t place, int status, int signal) {
  const auto found = processes_.find(place);
  if (found == processes_.end() || found->second.ends) return false;
  found->second.ends = true;
  const bool by_itself = !found->second.ended_by_us;
  after(delays_.notice, [this, place, status, signal] {
    const std::uint32_t pid = processes_.at(place).pid;
    processes_.erase(place);
    to_coordinator(kAgent, control::RoleExited{
                               .role = peers_[place], .status = status, .signal = signal, .last_line = {}, .pid = pid});
  });
  return by_itself;
}

std::size_t SimulatedControl::place_of(net::Peer peer) const {
  return static_cast<std::size_t>(std::find(peers_.begin(), peers_.end(), peer) - peers_.begin());
}

void SimulatedControl::after(Nanoseconds delay, std::function<void()> action) {
  due_.emplace(now() + delay, std::move(action));
  network_.transport(place_).wake();
}

void SimulatedControl::to_coordinator(const std::string& connection, ControlMessage message) {
  after(delays_.message, [this, connection, message = std::move(message)] {
    carry_out(coordinator_.receive(connection, message, now()));
  });
}

void SimulatedControl::carry_out(Coordinator::Actions actions) {
  for (Coordinator::Outgoing& each : actions.messages)
    after(delays_.message, [this, outgoing = std::move(each)] { deliver(outgoing); });
}

void SimulatedControl::deliver(const Coordinator::Outgoing& outgoing) {
  if (outgoing.to == kAgent) return to_agent(outgoing.message);
  if (const auto link = links_.find(outgoing.to); link != links_.end()) link->second->take(outgoing.message);
}

void SimulatedControl::to_agent(const ControlMessage& message) {
  if (const auto* start = std::get_if<control::StartRoles>(&message)) {
    for (const net::Peer role : start->roles) {
      to_start_.insert(place_of(role));
      network_.transport(role).wake();
    }
  } else if (const auto* end_roles = std::get_if<control::EndRoles>(&message)) {
    for (const net::Peer role : end_roles->roles) end(role);
  } else if (std::holds_alternative<control::Finish>(message) || std::holds_alternative<control::Abort>(message)) {
    to_coordinator(kAgent, control::Bye{});
  }
}

void SimulatedControl::end(net::Peer role) {
  const std::size_t place = place_of(role);
  to_start_.erase(place);
  const auto found = processes_.find(place);
  if (found == processes_.end())
    to_coordinator(kAgent, control::RoleExited{
                               .role = role, .status = 0, .signal = SIGKILL, .last_line = {}, .pid = 0, .gone = true});
  else if (!std::exchange(found->second.ended_by_us, true) && !found->second.ends)
    network_.kill(place, 1ms);
}

// The side of a role.

SimulatedControl::Link::Link(SimulatedControl& control, std::size_t place)
    : control_(control),
      place_(place),
      connection_(fmt::format("{}/{}", to_string(control.peers_[place]), control.pid(place))),
      woken_(&control.network_.transport(place)),
      self_(control.peers_[place]) {
  control.links_[connection_] = this;
  const net::Peer peer = place_peer();
  send(control::Hello{
      .role = peer.role, .rank = peer.rank, .host_id = {}, .hostname = "simulated", .pid = control.pid(place)});
  try {
    wait(control_.network_.transport(place_), [&] { return welcome_ || error_; });
    if (error_) throw Error(*error_);
  } catch (...) {
    control.links_.erase(connection_);
    throw;
  }
}

SimulatedControl::Link::~Link() {
  send(control::Bye{});
  control_.links_.erase(connection_);
}

void SimulatedControl::Link::send(ControlMessage message) {
  if (!control_.network_.dead(place_)) control_.to_coordinator(connection_, std::move(message));
}

void SimulatedControl::Link::take(ControlMessage message) {
  if (const auto* welcome = std::get_if<control::Welcome>(&message)) {
    welcome_ = true;
    epoch_ = told_epoch_ = welcome->epoch;
  } else if (auto* members = std::get_if<control::Members>(&message)) {
    told_epoch_ = std::max(told_epoch_, members->epoch);
    members_epoch_ = members->epoch;
    members_ = std::move(members->members);
    self_ = members->self;
  } else if (auto* regroup = std::get_if<control::Regroup>(&message)) {
    if (regroup->epoch > told_epoch_) regroup_text_ = std::move(regroup->text);
    told_epoch_ = std::max(told_epoch_, regroup->epoch);
  } else if (const auto* refused = std::get_if<control::Refused>(&message)) {
    error_ = Error(refused->kind, refused->text);
  } else if (const auto* abort = std::get_if<control::Abort>(&message)) {
    if (!error_) error_ = Error(abort->kind, "the job has failed: " + abort->text);
  } else if (std::holds_alternative<control::Finish>(message)) {
    finished_ = true;
  }
  woken_->wake();
}

void SimulatedControl::Link::wakes(net::Transport* transport) {
  woken_ = transport != nullptr ? transport : &control_.network_.transport(place_);
}

void SimulatedControl::Link::check_alive() const {
  if (control_.network_.dead(place_)) throw Died();
}

/// Drops the frames that arrive meanwhile: they belong to an epoch that is over, or are sent again.
void SimulatedControl::Link::wait(net::Transport& transport, const std::function<bool()>& holds) const {
  for (check_alive(); !holds(); check_alive()) {
    try {
      transport.receive(kNever);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer_lost) throw;
    }
  }
}

void SimulatedControl::Link::check() const {
  check_alive();
  if (error_) throw Error(*error_);
  if (regroups()) throw Error(ErrorKind::peer_lost, regroup_text_);
}

std::vector<net::Member> SimulatedControl::Link::meet(std::uint64_t step, bool has_state) {
  send(control::Ready{
      .addresses = {{"place", std::to_string(place_)}}, .epoch = epoch_, .step = step, .has_state = has_state});
  wait(control_.network_.transport(place_), [&] { return members_ || error_ || regroups(); });
  check();
  return *members_;
}

void SimulatedControl::Link::regroup(const Error& error) {
  send(control::Stuck{epoch_, error.what()});
  wait(control_.network_.transport(place_), [&] { return regroups() || error_; });
  if (error_) throw Error(*error_);
  epoch_ = told_epoch_;
  finished_ = false;
  if (members_ && members_epoch_ < epoch_) members_.reset();
}

void SimulatedControl::Link::resumed(std::uint64_t step) { send(control::Resumed{epoch_, step}); }
void SimulatedControl::Link::report() { send(control::Report{"{}"}); }
void SimulatedControl::Link::done() { send(control::Done{}); }
void SimulatedControl::Link::fail(const Error& error) { send(control::Failed{error.kind(), error.what()}); }

void SimulatedControl::Link::await_finish(net::Transport& transport) {
  wait(transport, [&] { return finished_ || error_ || regroups(); });
  if (!finished_) check();
}

}  // namespace psring::view
