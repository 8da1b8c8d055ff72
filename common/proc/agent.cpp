#include <map>
#include <utility>

#include <signal.h>
#include <sys/eventfd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/agent.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/common/proc/stop.h>

namespace psring {
namespace {

const std::filesystem::path& made(const std::filesystem::path& folder) {
  make_folder(folder);
  return folder;
}

class Agent {
 public:
  Agent(const AgentOptions& options, SignalWatch& signals, const Clock& clock)
      : options_(options),
        signals_(signals),
        clock_(clock),
        wake_(make_eventfd()),
        cluster_(made(options.log_folder), clock, options.keep_logs),
        link_({.endpoint = options.endpoint,
               .role = net::Role::agent,
               .rank = options.rank,
               .host_id = options.host_id,
               .join_timeout = options.join_timeout,
               .patient = options.patient,
               .while_joining = options.while_joining,
               .on_wait = options.on_notice,
               .stop_fd = signals.fd()},
              net::JobKey::load(options.key_file), clock) {
    link_.on_change([this] { ::eventfd_write(wake_.get(), 1); });
  }
  ~Agent() { link_.on_change({}); }

  AgentResult run() {
    try {
      while (!link_.finished()) {
        if (const auto signal = signals_.take()) {
          const Request request = requests_.take(*signal, clock_.now());
          if (request == Request::again) return end_at_once(*signal);
          if (request == Request::same) continue;
          signal_ = *signal;
          link_.interrupt(*signal);
          options_.on_notice(net::notice_of(*signal));
        }
        while (const auto order = link_.next_order(Moment::min())) carry_out(*order);
        link_.check();
        // The link's thread watches the coordinator, and wakes this thread. The coordinator notices a stopped role by
        // its silence, once the role has joined; the agent notices a role that stopped before.
        cluster_.kill_stopped(link_.heartbeat_timeout());
        relay_next(clock_.now() + link_.heartbeat_timeout() / 8);
      }
    } catch (const Error& error) {
      return failed(error);
    }
    const net::control::Interruption how = link_.interrupted();
    if (how.signal == 0) return {.signal = signal_, .more = link_.more() && signal_ == 0};
    return {.status = interrupted_status(how.signal),
            .cause = "interrupted " + net::control::describe(how),
            .interrupted = how,
            .signal = signal_};
  }

 private:
  using Order = net::ControlLink::Order;
  using Request = net::StopRequests::Request;

  static std::string name_of(net::Peer role) { return fmt::format("{}-{}", to_string(role.role), role.rank); }

  void carry_out(const Order& order) {
    if (order.kind == Order::Kind::start) start(order.roles);
    if (order.kind == Order::Kind::end) end(order.roles);
    if (order.kind == Order::Kind::tell) options_.on_notice(order.text);
  }

  /// Reports again that a role does not run any more, because the coordinator may have missed its exit.
  void end(const std::vector<net::Peer>& roles) {
    for (const net::Peer& role : roles)
      if (!cluster_.kill(name_of(role))) link_.role_exited({.role = role, .signal = SIGKILL, .gone = true});
  }

  void start(const std::vector<net::Peer>& roles) {
    for (const net::Peer& role : roles) {
      if (cluster_.runs(name_of(role))) continue;  // a repeated order
      std::vector<std::string> argv = options_.command;
      argv.insert(argv.end(), {fmt::format("role-{}", to_string(role.role)), "--rdzv-endpoint", options_.endpoint,
                               "--key", options_.key_file.string(), "--rank", std::to_string(role.rank)});
      if (link_.patient()) argv.push_back("--patient");
      const std::string name = name_of(role);
      cluster_.start(name, std::move(argv), options_.inherited);
      roles_[name] = role;
    }
  }

  /// Waits for an exit and tells the coordinator, or for news of the link, or for a signal. Returns false if the
  /// deadline has passed.
  bool relay_next(Moment deadline) {
    std::vector<int> wake = options_.tend(link_.silent());
    wake.insert(wake.end(), {wake_.get(), signals_.fd()});
    if (const auto exit = cluster_.next_exit(deadline, wake)) relay(*exit);
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    return clock_.now() < deadline;
  }

  void relay(const ProcessExit& exit) {
    link_.role_exited(
        {roles_.at(exit.name), exit.status, exit.signal, message_of(exit), static_cast<std::uint32_t>(exit.pid)});
  }

  AgentResult end_at_once(int signal) {
    link_.interrupt(signal, true);
    end_roles(Nanoseconds(0));
    return {.status = interrupted_status(signal),
            .cause = "interrupted",
            .interrupted = {signal},
            .signal = signal_,
            .failed = true};
  }

  AgentResult failed(const Error& error) {
    link_.fail(error);  // the coordinator ignores an error that came from itself
    const Moment deadline = clock_.now() + options_.abort_grace;
    while (cluster_.running() > 0 && relay_next(deadline)) {
      const auto signal = signals_.take();
      if (!signal) continue;
      if (signal_ == 0) signal_ = *signal;
      if (requests_.take(*signal, clock_.now()) != Request::same) break;
    }
    end_roles(options_.kill_grace);
    net::control::Interruption how = link_.interrupted();
    if (how.signal == 0 && link_.silent())
      how.signal = signal_;  // the coordinator cannot end the job between two steps
    return {.status = how.signal != 0 ? interrupted_status(how.signal) : exit_status(error.kind()),
            .cause = error.what(),
            .coordinator_was_silent = link_.silent(),
            .coordinator_was_lost = link_.lost(),
            .interrupted = how,
            .signal = signal_,
            .failed = true,
            .more = link_.more() && signal_ == 0 && how.signal == 0 && error.kind() == ErrorKind::data,
            .culprit = link_.culprit()};
  }

  void end_roles(Nanoseconds grace) {
    for (const ProcessExit& exit : cluster_.terminate_all(grace)) relay(exit);
    try {
      link_.flush(clock_.now() + options_.kill_grace);
    } catch (const Error&) {  // the coordinator has ended first: no process is left to report to
    }
  }

  // Constant after construction.
  const AgentOptions& options_;
  SignalWatch& signals_;
  const Clock& clock_;
  const Fd wake_;

  LocalCluster cluster_;
  net::ControlLink link_;
  std::map<std::string, net::Peer> roles_;  ///< by the name of the process
  net::StopRequests requests_;
  int signal_ = 0;  ///< the first signal; 0: none
};

}  // namespace

AgentResult run_agent(const AgentOptions& options, SignalWatch& signals, const Clock& clock) {
  try {
    return Agent(options, signals, clock).run();
  } catch (const Error& error) {
    AgentResult result{.status = exit_status(error.kind()), .cause = error.what(), .joined = false, .failed = true};
    if (const auto signal = signals.take()) {
      result.status = interrupted_status(*signal);
      result.cause = "interrupted";
      result.interrupted.signal = result.signal = *signal;
    }
    return result;
  }
}

}  // namespace psring
