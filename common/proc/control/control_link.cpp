#include <algorithm>
#include <stop_token>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/net/address.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/control/control_link.h>
#include <psring/common/proc/control/control_member.h>
#include <psring/common/proc/control/control_socket.h>

namespace psring::net {
namespace {

constexpr Nanoseconds kFar = std::chrono::hours(24);  ///< stands for no deadline, with which wait_until overflows
constexpr std::size_t kErrorBytes = 4096;             ///< the most bytes of a fatal error's text that are sent

control::Hello hello_of(const ControlLink::Options& options) {
  return {.role = options.role,
          .rank = options.rank,
          .host_id = options.host_id,
          .hostname = net::host_name(),
          .pid = static_cast<std::uint32_t>(::getpid()),
          .processor = options.processor,
          .asks = options.asks,
          .build = build_id(),
          .pid_namespace = pid_namespace()};
}

std::string text_of(const Error& error) { return std::string(error.what()).substr(0, kErrorBytes); }

}  // namespace

/// Runs the state machine of a member: the caller's threads ask and tell under the mutex, and the link's thread moves
/// messages between the state machine and the socket.
class ControlLink::Impl {
 public:
  Impl(Options options, const JobKey& key, const Clock& clock)
      : options_(std::move(options)),
        address_(to_string(resolve_endpoint("--rdzv-endpoint", options_.endpoint))),
        key_(key),
        clock_(clock),
        wake_(make_eventfd()),
        member_({.hello = hello_of(options_),
                 .endpoint = options_.endpoint,
                 .join_timeout = options_.join_timeout,
                 .patient = options_.patient},
                clock.now()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    MutexLock lock(mutex_);
    // No deadline is needed here: the link's thread keeps the join timeout.
    for (;;) {
      news_.wait_for(mutex_, std::chrono::milliseconds(100), [&] {
        mutex_.assert_held();
        return member_.joined() || member_.error() || member_.has_reason_to_wait();
      });
      const std::optional<std::string> reason = member_.take_reason_to_wait();
      if (member_.joined() || member_.error()) break;
      lock.unlock();
      if (reason && options_.on_wait) options_.on_wait(*reason);
      if (options_.while_joining) options_.while_joining();
      lock.lock();
    }
    if (member_.error()) throw Error(*member_.error());
  }

  const control::Welcome& welcome() const PSRING_UNCHECKED { return member_.welcome(); }  // constant once joined

  auto ask(auto&& question) const {
    const MutexLock lock(mutex_);
    return question(member_);
  }
  void tell(auto&& change) {
    const MutexLock lock(mutex_);
    change(member_);
    ::eventfd_write(wake_.get(), 1);
  }

  void check() {
    const MutexLock lock(mutex_);
    member_.wait(clock_.now());
    member_.throw_if_broken();
  }
  std::vector<Member> members(Moment deadline) {
    MutexLock lock(mutex_);
    wait(deadline, "the other members", [](const auto& member) { return member.members() || member.broken(); });
    member_.throw_if_broken();
    return *member_.members();
  }
  void await_epoch(Moment deadline) {
    MutexLock lock(mutex_);
    wait(deadline, "the members to regroup", [](const auto& member) { return member.broken(); });
    if (member_.error()) throw Error(*member_.error());
    member_.enter_epoch();
  }
  bool may_begin(StopPoint point) {
    MutexLock lock(mutex_);
    auto turn = StepGate::Turn::wait;
    wait(Moment::max(), "the other workers to agree on a last step",
         [&](auto& member) { return member.broken() || (turn = member.ask(point)) != StepGate::Turn::wait; });
    try {
      member_.throw_if_broken();
    } catch (const Error& error) {
      throw error.with_context(fmt::format("before step {}", point.step));
    }
    return turn == StepGate::Turn::go;
  }
  void flush(Moment deadline) {
    MutexLock lock(mutex_);
    const std::uint64_t heartbeat = member_.outbox().next_heartbeat();
    const auto arrived = [&](const auto& member) { return member.outbox().acknowledged(heartbeat); };
    member_.watch().request_heartbeat();
    ::eventfd_write(wake_.get(), 1);
    wait(deadline, "the coordinator to handle the messages that were sent",
         [&](const auto& member) { return arrived(member) || member.gone(); });
    if (!arrived(member_) && !member_.complete()) throw Error(*member_.gone());
  }
  std::optional<Error> await_failure(Moment deadline) {
    MutexLock lock(mutex_);
    wait_until(deadline, [](const auto& member) { return member.error().has_value(); });
    return member_.error();
  }
  bool await_finish(Moment deadline) {
    MutexLock lock(mutex_);
    wait_until(deadline, [](const auto& member) { return member.finished() || member.broken(); });
    if (member_.finished()) return true;
    member_.throw_if_broken();
    return false;
  }
  std::optional<Order> next_order(Moment deadline) {
    MutexLock lock(mutex_);
    if (deadline > clock_.now())
      wait(deadline, "orders", [](const auto& member) { return member.has_order() || member.error(); });
    if (member_.error()) throw Error(*member_.error());
    return member_.take_order();
  }

  void on_change(std::function<void()> changed) {
    const MutexLock lock(changed_mutex_);
    changed_ = std::move(changed);
    if (changed_) changed_();
  }

  void leave() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    context_.reset();  // waits until the goodbye has left: the process may end now
  }

 private:
  bool wait_until(Moment deadline, auto&& holds) PSRING_REQUIRES(mutex_) {
    return news_.wait_until(mutex_, std::min(deadline, clock_.now() + kFar), [&] {
      mutex_.assert_held();
      return holds(member_);
    });
  }
  void wait(Moment deadline, std::string_view purpose, auto&& holds) PSRING_REQUIRES(mutex_) {
    const Moment start = clock_.now();
    if (!wait_until(deadline, holds))
      psring::fail(ErrorKind::timeout, "{}timed out after {:.1f} s waiting for {}", member_.prefix(),
                   seconds(clock_.now() - start), purpose);
  }

  // The link's thread.

  void run(const std::stop_token& stop) {
    const std::stop_callback wake_up(stop, [this] { ::eventfd_write(wake_.get(), 1); });
    const auto goes_on = [&] { return !stop.stop_requested() && !is_gone(); };
    try {
      for (int number = 0; goes_on(); ++number) {
        ControlSocket socket(*context_, key_, number);
        if (const auto error = socket.connect(address_))
          psring::fail(ErrorKind::usage, "--rdzv-endpoint {}: {}", options_.endpoint, *error);
        if (std::exchange(cut_off_, false)) tell([](ControlMember& member) { member.reconnect(); });
        while (goes_on() && !cut_off_) serve(socket);
        if (is_gone() || cut_off_) continue;
        tell([](ControlMember& member) { member.send(control::Bye{}); });
        send_outgoing(socket);
        socket.linger();
      }
    } catch (const Error& error) {
      lose(error.kind(), error.what());
    }
  }

  void serve(ControlSocket& socket) {
    const Moment planned = ask([](const ControlMember& member) { return member.watch().next_deadline(); });
    const bool joined = ask([](const ControlMember& member) { return member.joined(); });
    const bool stopped = socket.wait(wake_.get(), joined ? -1 : options_.stop_fd, clock_.now(), planned);
    change([&](ControlMember& member) {
      member.watch().wake(planned, clock_.now());
      return false;
    });
    if (stopped) return lose(ErrorKind::timeout, "interrupted while joining");
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    const ControlSocket::Changes changes = socket.take_changes();
    if (changes.refused)
      lose(ErrorKind::unauthorised,
           fmt::format("--rdzv-endpoint {}: the handshake failed: --key is not the coordinator's", options_.endpoint));
    while (const auto bytes = socket.receive(buffer_))
      change([&](ControlMember& member) { return member.receive(*bytes, clock_.now()); });
    if (changes.closed) {
      change([&](ControlMember& member) {
        cut_off_ = member.lose_connection(fmt::format("the coordinator ({}) closed the connection", options_.endpoint),
                                          clock_.now());
        return !cut_off_;
      });
      if (cut_off_) return;
    }
    send_outgoing(socket);
    change([&](ControlMember& member) {
      const ControlMember::Look look = member.look(clock_.now());
      cut_off_ = look.reconnect;
      return look.changed;
    });
  }

  void send_outgoing(ControlSocket& socket) {
    std::vector<ControlOutbox::Bytes> outgoing;
    change([&](ControlMember& member) {
      outgoing = member.take_outgoing(clock_.now(), received_bytes());
      return false;
    });
    for (const ControlOutbox::Bytes& bytes : outgoing) socket.send(bytes);
  }

  void lose(ErrorKind kind, const std::string& text) {
    change([&](ControlMember& member) {
      member.lose(kind, text);
      return true;
    });
  }
  /// Changes the member's state. `body` returns true if the caller's questions may have new answers.
  void change(auto&& body) {
    bool changed = false;
    {
      const MutexLock lock(mutex_);
      changed = body(member_);
      news_.notify_all();
    }
    if (!changed) return;
    const MutexLock lock(changed_mutex_);
    if (changed_) changed_();
  }
  std::uint64_t received_bytes() const { return options_.bytes == nullptr ? 0 : options_.bytes->received_bytes(); }
  bool is_gone() const {
    return ask([](const ControlMember& member) { return member.gone().has_value(); });
  }

  // Constant after construction.
  const Options options_;
  const std::string address_;  ///< of the coordinator, in digits
  const JobKey key_;
  const Clock& clock_;
  const Fd wake_;

  // Used by the link's thread alone, and after its end.
  std::optional<ZmqContext> context_{std::in_place};
  bool cut_off_ = false;  ///< the connection is lost, and a new one begins
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxControlBytes);

  mutable Mutex mutex_;
  Condition news_;
  ControlMember member_ PSRING_GUARDED_BY(mutex_);

  Mutex changed_mutex_;
  std::function<void()> changed_ PSRING_GUARDED_BY(changed_mutex_);

  std::jthread thread_;
};

ControlLink::ControlLink(Options options, const JobKey& key, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), key, clock)) {}
ControlLink::~ControlLink() = default;

void ControlLink::leave() { impl_->leave(); }

const std::string& ControlLink::job() const { return impl_->welcome().job; }
Nanoseconds ControlLink::heartbeat_timeout() const { return impl_->welcome().heartbeat_timeout; }
bool ControlLink::more() const { return impl_->welcome().more; }
bool ControlLink::patient() const { return impl_->welcome().patience > Nanoseconds(0); }

std::uint32_t ControlLink::rank() const {
  return impl_->ask([](const ControlMember& member) { return member.self().rank; });
}
std::uint32_t ControlLink::epoch() const {
  return impl_->ask([](const ControlMember& member) { return member.epoch(); });
}
bool ControlLink::finished() const {
  return impl_->ask([](const ControlMember& member) { return member.finished(); });
}
bool ControlLink::failed() const {
  return impl_->ask([](const ControlMember& member) { return member.error().has_value(); });
}
bool ControlLink::silent() const {
  return impl_->ask([](const ControlMember& member) { return member.watch().silent(); });
}
bool ControlLink::lost() const {
  return impl_->ask([](const ControlMember& member) { return member.lost(); });
}
Peer ControlLink::culprit() const {
  return impl_->ask([](const ControlMember& member) { return member.culprit(); });
}
control::Interruption ControlLink::interrupted() const {
  return impl_->ask([](const ControlMember& member) { return member.interrupted(); });
}
Nanoseconds ControlLink::clock_offset() const {
  return impl_->ask([](const ControlMember& member) { return member.clock_offset(); });
}
void ControlLink::check() const { impl_->check(); }

std::vector<Member> ControlLink::members(Moment deadline) const { return impl_->members(deadline); }
void ControlLink::await_epoch(Moment deadline) { impl_->await_epoch(deadline); }
bool ControlLink::may_begin(StopPoint point) { return impl_->may_begin(point); }
void ControlLink::flush(Moment deadline) { impl_->flush(deadline); }
std::optional<Error> ControlLink::await_failure(Moment deadline) const { return impl_->await_failure(deadline); }
bool ControlLink::await_finish(Moment deadline) const { return impl_->await_finish(deadline); }
std::optional<ControlLink::Order> ControlLink::next_order(Moment deadline) { return impl_->next_order(deadline); }
void ControlLink::on_change(std::function<void()> changed) { impl_->on_change(std::move(changed)); }

void ControlLink::ready(Addresses addresses, std::uint64_t step, bool has_state, Addresses files) {
  impl_->tell([&](ControlMember& member) {
    member.send_standing(control::Ready{std::move(addresses), member.epoch(), step, has_state, std::move(files)});
  });
}
void ControlLink::stuck(const Error& error) {
  impl_->tell([&](ControlMember& member) { member.send_surely(control::Stuck{member.epoch(), text_of(error)}); });
}
void ControlLink::resumed(std::uint64_t step) {
  impl_->tell([&](ControlMember& member) { member.resumed(step); });
}
void ControlLink::append(const std::string& file, std::span<const std::byte> bytes) {
  psring::check(is_safe_file_name(file), "'{}' is not a name for a file of the run folder", file);
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMaxAppendBytes));
    impl_->tell([&](ControlMember& member) { member.append(file, piece); });
    bytes = bytes.subspan(piece.size());
  }
}
void ControlLink::report(std::string json) {
  impl_->tell([&](ControlMember& member) { member.send_standing(control::Report{std::move(json)}); });
}
void ControlLink::status(std::string json, bool is_last) {
  if (json.size() > kMaxTextBytes) return;
  impl_->tell([&](ControlMember& member) { member.status(std::move(json), is_last); });
}
void ControlLink::progress(std::string text) {
  impl_->tell([&](ControlMember& member) { member.send(control::Progress{std::move(text)}); });
}
void ControlLink::fail(const Error& error, bool decided) {
  impl_->tell([&](ControlMember& member) {
    member.send_surely(control::Failed{error.kind(), text_of(error), decided});
  });
}
void ControlLink::done(std::uint64_t step, bool stopped) {
  impl_->tell([&](ControlMember& member) { member.done(step, stopped); });
}
/// Every coordinator of the epoch has to know of the signal.
void ControlLink::interrupt(int signal, bool at_once) {
  impl_->tell([&](ControlMember& member) { member.send_standing(control::Interrupt{signal, at_once}); });
}
void ControlLink::role_exited(control::RoleExited exit) {
  impl_->tell([&](ControlMember& member) { member.send_surely(std::move(exit)); });
}

}  // namespace psring::net
