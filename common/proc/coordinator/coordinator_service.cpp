#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/host.h>
#include <psring/common/net/refusals.h>
#include <psring/common/net/zmq/gate.h>
#include <psring/common/net/zmq/socket.h>
#include <psring/common/net/zmq/zap.h>
#include <psring/common/proc/coordinator/coordinator_service.h>
#include <psring/common/proc/logs/appended_files.h>

namespace psring::net {
namespace {

/// Notices the ends of processes of this host that this process has not started. Belongs to one thread.
class ProcessEnds {
 public:
  /// Throws data if the kernel has no more descriptors.
  ProcessEnds();

  /// Watches the process with this number, under a name of the caller's. Does nothing if the process cannot be watched.
  void watch(std::uint32_t pid, std::string name);
  /// Is readable when `take` has something to return.
  int fd() const { return epoll_.get(); }
  /// The names of the processes that have ended since the last call.
  std::vector<std::string> take();

 private:
  Fd epoll_;
  std::unordered_map<int, std::pair<Fd, std::string>> watched_;  ///< by descriptor
  std::vector<std::string> ended_;                               ///< before they could be watched
};

ProcessEnds::ProcessEnds() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail(ErrorKind::data, "cannot watch processes: {}", std::strerror(errno));
}

void ProcessEnds::watch(std::uint32_t pid, std::string name) {
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    if (errno == ESRCH) ended_.push_back(std::move(name));
    return;
  }
  epoll_event event{.events = EPOLLIN, .data = {.fd = process.get()}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) return;
  const int key = process.get();
  watched_.insert_or_assign(key, std::pair(std::move(process), std::move(name)));
}

std::vector<std::string> ProcessEnds::take() {
  std::vector<std::string> ended = std::exchange(ended_, {});
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    auto process = watched_.extract(events[static_cast<std::size_t>(i)].data.fd);
    ended.push_back(std::move(process.mapped().second));
  }
  return ended;
}

constexpr std::string_view kScheme = "tcp://";

/// A message that the ROUTER received. Messages are read into one buffer of the largest size and decoded in place.
struct Received {
  std::string from;
  int connection = -1;   ///< the connection's number at the gate
  std::size_t size = 0;  ///< of the message in the buffer; larger than the buffer if the message was too long
};

/// The next message; nothing if there is none.
std::optional<Received> receive(void* router, std::span<std::byte> buffer) {
  Received received;
  received.from.resize(256);  // an identity has at most 255 bytes
  const int name_bytes = zmq_recv(router, received.from.data(), received.from.size(), ZMQ_DONTWAIT);
  if (name_bytes < 0) return std::nullopt;
  received.from.resize(static_cast<std::size_t>(name_bytes));
  const auto has_more = [&] {
    int more = 0;
    std::size_t bytes = sizeof more;
    return zmq_getsockopt(router, ZMQ_RCVMORE, &more, &bytes) == 0 && more != 0;
  };
  if (has_more()) {
    zmq_msg_t part;  // the identity's own message does not always name the connection
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, router, 0) >= 0) {
      received.size = zmq_msg_size(&part);
      received.connection = connection_of(part);
      std::memcpy(buffer.data(), zmq_msg_data(&part), std::min(received.size, buffer.size()));
    }
    zmq_msg_close(&part);
  }
  for (; has_more(); received.size = buffer.size() + 1) zmq_recv(router, nullptr, 0, 0);  // a message has one part
  return received;
}

}  // namespace

class CoordinatorService::Impl {
 public:
  Impl(Options options, const JobKey& key, const Clock& clock)
      : on_progress_(std::move(options.on_progress)),
        on_notice_(std::move(options.on_notice)),
        on_append_(std::move(options.on_append)),
        clock_(clock),
        timeout_(options.plan.heartbeat_timeout),
        keeps_journal_(options.plan.recovery.possible()),
        folder_(options.run_folder, options.plan.recovery.is_second),
        zap_(context_.handle(), {key.client_keys().public_key}),
        router_(context_.handle(), ZMQ_ROUTER),
        refusals_("coordinator", clock, std::move(options.on_refusals)),
        // A member that connects again sends a message at its next heartbeat, at the latest.
        gate_(
            std::in_place, context_, router_, &refusals_,
            ZmqGate::Limits{.most = ZmqGate::kMost + options.plan.workers + options.plan.servers + options.plan.agents,
                            .patience = std::max(ZmqGate::kPatience, 2 * options.plan.heartbeat_interval)}),
        coordinator_(std::move(options.plan), clock.now()) {
    use_curve_server(router_.handle(), key.server_keys(), zap_);
    router_.set(ZMQ_LINGER, 1000);
    router_.set(ZMQ_SNDHWM, 0);  // control messages are few and small, and none may be dropped
    const std::string address = to_string(resolve_endpoint("--listen", options.listen, 0));
    router_.set(ZMQ_IPV6, address.starts_with('[') ? 1 : 0);  // otherwise the endpoint reads [::ffff:127.0.0.1]
    const std::int64_t most = kMaxControlBytes + 4096;        // with CURVE's overhead
    const bool limited = zmq_setsockopt(router_.handle(), ZMQ_MAXMSGSIZE, &most, sizeof most) == 0;
    check(limited, "ZeroMQ: {}", zmq_strerror(errno));
    if (zmq_bind(router_.handle(), fmt::format("{}{}", kScheme, address).c_str()) != 0)
      fail(ErrorKind::usage, "--listen {}: {}", options.listen, zmq_strerror(errno));
    endpoint_ = router_.get_text(ZMQ_LAST_ENDPOINT).substr(kScheme.size());
  }

  const std::string& endpoint() const { return endpoint_; }
  const AppendedFiles& folder() const { return folder_; }

  JobResult run(const Signals& signals) {
    // The clock is read at least this often, unless the process stands still.
    const Nanoseconds most = timeout_ / 4;
    Moment due = clock_.now() + most;
    while (!coordinator_.ended()) {
      zmq_pollitem_t items[] = {{router_.handle(), 0, ZMQ_POLLIN, 0},
                                {nullptr, ends_.fd(), ZMQ_POLLIN, 0},
                                {nullptr, signals.fd, ZMQ_POLLIN, 0}};
      zmq_poll(items, signals.fd >= 0 ? 3 : 2,
               poll_milliseconds(clock_.now(), std::min(due, coordinator_.next_tick())));
      const Moment now = clock_.now();
      if (now - due > timeout_ / 2) coordinator_.stood_still(now - due, now);
      due = now + most;
      while (const auto signal = signals.take()) carry_out(coordinator_.interrupt(*signal, clock_.now()));
      take_messages();
      for (const std::string& connection : ends_.take())
        carry_out(coordinator_.process_ended(connection, clock_.now()));
      carry_out(coordinator_.tick(clock_.now()));
    }
    gate_.reset();  // stops counting
    folder_.publish("reports/coordinator-0.json", fmt::format(R"({{"refused":{}}})", refusals_.total()));
    return coordinator_.result();
  }

 private:
  void take_messages() {
    // Handles all messages before the tick, because a message that waits in the socket is no silence. The number is
    // bounded, so that a member that floods the socket cannot delay the tick.
    for (int i = 0; i < 4096; ++i) {
      const std::optional<Received> received = receive(router_.handle(), buffer_);
      if (!received) return;
      gate_->trust(received->connection);  // CURVE let it through
      carry_out(handle(*received));
    }
  }

  Coordinator::Actions handle(const Received& received) {
    std::optional<ControlMessage> message;
    try {
      if (received.size > buffer_.size()) fail(ErrorKind::protocol, "control message that is too long");
      message = decode_control(std::span(buffer_).first(received.size));
    } catch (const Error& error) {
      return coordinator_.receive_garbage(received.from, error, clock_.now());
    }
    return coordinator_.receive(received.from, std::move(*message), clock_.now());
  }

  void carry_out(const Coordinator::Actions& actions) {
    for (const Coordinator::Event& event : actions.events) {
      try {
        std::visit([&](const auto& request) { store(event, request); }, event.what);
      } catch (const Error& error) {
        carry_out(coordinator_.abort(error, clock_.now()));
      }
    }
    for (const Coordinator::Joined& process : actions.joined)
      if (process.host_id == host_ && process.pid_namespace == pid_namespace_)
        ends_.watch(process.pid, process.connection);
    for (const Coordinator::Outgoing& outgoing : actions.messages) {
      const std::vector<std::byte> bytes = encode_control(outgoing.message);
      // ZeroMQ drops messages to a member that has gone. That is right, because the member's silence or its agent shows
      // the loss.
      if (zmq_send(router_.handle(), outgoing.to.data(), outgoing.to.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
        zmq_send(router_.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
    }
  }

  void store(const Coordinator::Event& event, const control::Append& append) {
    if (keeps_journal_ && append.number != 0) {
      if (!folder_.append_once(event.process, append.number, append.file, append.bytes)) return;
    } else {
      folder_.append(append.file, append.bytes);
    }
    on_append_(append.file, {reinterpret_cast<const char*>(append.bytes.data()), append.bytes.size()});
  }
  void store(const Coordinator::Event& event, const control::Report& report) {
    folder_.publish(fmt::format("reports/{}-{}.json", to_string(event.from.role), event.from.rank), report.json);
  }
  void store(const Coordinator::Event& event, const control::Status& status) {
    try {
      folder_.publish(fmt::format("live/{}-{}.json", to_string(event.from.role), event.from.rank), status.json);
    } catch (const Error&) {  // the view shows an older status; that is no reason to end the job
    }
  }
  void store(const Coordinator::Event& event, const control::Progress& progress) {
    on_progress_(event.from, progress.text);
  }
  void store(const Coordinator::Event&, const control::Notice& notice) { on_notice_(notice.text); }

  // Constant after construction.
  const std::function<void(Peer, const std::string&)> on_progress_;
  const std::function<void(const std::string&)> on_notice_;
  const std::function<void(const std::string&, std::string_view)> on_append_;
  const Clock& clock_;
  const Nanoseconds timeout_;
  const bool keeps_journal_;  ///< appends are written exactly once, across coordinators
  std::string endpoint_;

  AppendedFiles folder_;
  ZmqContext context_;
  ZapAuthenticator zap_;
  ZmqSocket router_;
  Refusals refusals_;
  std::optional<ZmqGate> gate_;  ///< of the router
  const std::string host_ = host_id();
  const std::uint64_t pid_namespace_ = pid_namespace();
  ProcessEnds ends_;  ///< of members on this host, by connection
  Coordinator coordinator_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxControlBytes);
};

CoordinatorService::CoordinatorService(Options options, const JobKey& key, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), key, clock)) {}
CoordinatorService::~CoordinatorService() = default;
const std::string& CoordinatorService::endpoint() const { return impl_->endpoint(); }
std::uintmax_t CoordinatorService::size_before_appends(const std::string& file) const {
  return impl_->folder().size_before_appends(file);
}
JobResult CoordinatorService::run(const Signals& signals) { return impl_->run(signals); }

}  // namespace psring::net
