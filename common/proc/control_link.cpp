#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/common/base/fd.h>
#include <psring/common/base/poll.h>
#include <psring/common/net/address.h>
#include <psring/common/net/zmq/monitor.h>
#include <psring/common/net/zmq/socket.h>
#include <psring/common/net/zmq/zap.h>
#include <psring/common/proc/control_link.h>
#include <psring/common/proc/stop.h>

namespace psring::net {
namespace {

constexpr int kFailedHandshakes = 3;       // then the key is wrong: one alone may be a listener that is closing
constexpr int kQuickHeartbeats = 8;        // at the start, for a good clock offset early
constexpr std::size_t kErrorBytes = 4096;  // of a fatal error's text

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// The next part of a message, read into `buffer` and cut off where it is longer; nothing where none is there.
std::optional<std::span<const std::byte>> receive_part(void* socket, std::span<std::byte> buffer) {
  const int size = zmq_recv(socket, buffer.data(), buffer.size(), ZMQ_DONTWAIT);
  if (size < 0) return std::nullopt;
  return buffer.first(std::min(static_cast<std::size_t>(size), buffer.size()));
}

}  // namespace

class ControlLink::Impl {
 public:
  Impl(Options options, const JobKey& key, const Clock& clock)
      : options_(std::move(options)),
        address_(to_string(resolve_endpoint("--rdzv-endpoint", options_.endpoint))),
        key_(key),
        clock_(clock),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        join_deadline_(clock.now() + options_.join_timeout) {
    psring::check(static_cast<bool>(wake_), "no eventfd: {}", std::strerror(errno));
    send(hello());
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    std::unique_lock lock(mutex_);
    // The thread keeps the join deadline.
    while (!news_.wait_for(lock, std::chrono::milliseconds(100), [&] { return welcome_ || error_; })) {
      lock.unlock();
      if (options_.while_joining) options_.while_joining();
      lock.lock();
    }
    if (error_) throw Error(*error_);
  }

  const control::Welcome& welcome() const { return *welcome_; }

  void send(const ControlMessage& message) {
    std::vector<std::byte> bytes = encode_control(message);
    const std::scoped_lock lock(mutex_);
    queue(std::move(bytes));
  }
  /// The same, and again to a coordinator that takes the place of one that may not have taken it.
  void send_surely(const ControlMessage& message) {
    const std::scoped_lock lock(mutex_);
    queue_surely(message);
  }
  void append(const std::string& file, std::span<const std::byte> bytes) {
    const std::scoped_lock lock(mutex_);  // numbers are in the order in which they leave
    queue_surely(control::Append{file, {bytes.begin(), bytes.end()}, ++appends_});
  }
  /// What every coordinator has to know, until the epoch is over.
  void tell(const ControlMessage& message) {
    std::vector<std::byte> bytes = encode_control(message);
    const std::scoped_lock lock(mutex_);
    standing_.push_back(bytes);
    queue(std::move(bytes));
  }

  std::vector<Member> members(Moment deadline) const {
    std::unique_lock lock(mutex_);
    wait(lock, deadline, "the other members", [&] { return members_ || broken(); });
    throw_if_broken();
    return *members_;
  }
  Peer self() const {
    const std::scoped_lock lock(mutex_);
    return self_;
  }
  std::uint32_t epoch() const {
    const std::scoped_lock lock(mutex_);
    return epoch_;
  }
  void await_epoch(Moment deadline) {
    std::unique_lock lock(mutex_);
    wait(lock, deadline, "the members to regroup", [&] { return told_epoch_ > epoch_ || error_; });
    if (error_) throw Error(*error_);
    epoch_ = told_epoch_;
    standing_.clear();
    finished_ = false;
    gate_ = {};
    if (members_ && members_epoch_ < epoch_) members_.reset();
  }

  void flush(Moment deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t mark = last_mark_ + 1;  // of the next heartbeat
    heartbeat_now_ = true;
    ::eventfd_write(wake_.get(), 1);
    wait(lock, deadline, "the coordinator to take what was sent", [&] { return acked_mark_ >= mark || gone_; });
    if (acked_mark_ < mark && !(finished_ && has_said_all())) throw Error(*gone_);
  }

  void check() const {
    const std::scoped_lock lock(mutex_);
    throw_if_broken();
  }
  bool finished() const {
    const std::scoped_lock lock(mutex_);
    return finished_;
  }
  bool silent() const {
    const std::scoped_lock lock(mutex_);
    return silent_;
  }
  void done(std::uint64_t step, bool stopped) {
    {
      const std::scoped_lock lock(mutex_);
      if (stopped) interrupted_ = {stop_signal_, step, step};
    }
    tell(control::Done{step, interrupted().signal});
  }
  bool failed() const {
    const std::scoped_lock lock(mutex_);
    return error_.has_value();
  }
  bool may_begin(std::uint64_t step) {
    std::unique_lock lock(mutex_);
    auto turn = StepGate::Turn::wait;
    wait(lock, Moment::max(), "the others, to end where they do",
         [&] { return broken() || (turn = gate_.ask(step)) != StepGate::Turn::wait; });
    throw_if_broken();
    return turn == StepGate::Turn::go;
  }
  Peer culprit() const {
    const std::scoped_lock lock(mutex_);
    return culprit_;
  }
  control::Interruption interrupted() const {
    const std::scoped_lock lock(mutex_);
    return interrupted_;
  }
  void await_finish() const {
    std::unique_lock lock(mutex_);
    wait(lock, Moment::max(), "the job to end", [&] { return finished_ || broken(); });
    if (!finished_) throw_if_broken();
  }
  Nanoseconds clock_offset() const {
    const std::scoped_lock lock(mutex_);
    return clock_offset_;
  }
  std::optional<Order> next_order(Moment deadline) {
    std::unique_lock lock(mutex_);
    if (deadline > clock_.now()) wait(lock, deadline, "orders", [&] { return !orders_.empty() || error_; });
    if (error_) throw Error(*error_);
    if (orders_.empty()) return std::nullopt;
    Order order = std::move(orders_.front());
    orders_.pop_front();
    return order;
  }

  void on_change(std::function<void()> changed) {
    const std::scoped_lock lock(changed_mutex_);
    changed_ = std::move(changed);
    if (changed_) changed_();
  }

  Nanoseconds heartbeat_timeout() const {
    const std::scoped_lock lock(mutex_);
    return welcome_->heartbeat_timeout;
  }

  Nanoseconds patience() const {
    const std::scoped_lock lock(mutex_);
    return welcome_ ? welcome_->patience : Nanoseconds(0);
  }

 private:
  // REQUIRES: the mutex is held.
  void queue(std::vector<std::byte> bytes) {
    if (gone_) return;
    outgoing_.push_back(std::move(bytes));
    ::eventfd_write(wake_.get(), 1);
  }
  void queue_surely(const ControlMessage& message) {
    std::vector<std::byte> bytes = encode_control(message);
    if (welcome_ && welcome_->patience > Nanoseconds(0)) {
      unconfirmed_.push_back(bytes);
      ++sent_;
    }
    queue(std::move(bytes));
  }
  control::Hello hello() const {
    return {.role = options_.role,
            .rank = options_.rank,
            .host_id = options_.host_id,
            .hostname = host_name(),
            .pid = static_cast<std::uint32_t>(::getpid()),
            .processor = options_.processor,
            .asks = options_.asks};
  }
  bool broken() const { return error_ || told_epoch_ > epoch_; }
  void throw_if_broken() const {
    if (error_) throw Error(*error_);
    if (told_epoch_ > epoch_) throw Error(ErrorKind::peer_lost, prefix() + regroup_text_);
  }

  void wait(std::unique_lock<std::mutex>& lock, Moment deadline, std::string_view what, auto&& holds) const {
    const Moment start = clock_.now();
    // wait_until overflows on far deadlines: a day is for ever.
    const Moment until = std::min(deadline, start + std::chrono::hours(24));
    if (!news_.wait_until(lock, until, holds))
      psring::fail(ErrorKind::timeout, "{}timed out after {:.1f} s waiting for {}", prefix(),
                   seconds(clock_.now() - start), what);
  }

  // ---- the link's thread ----

  void run(const std::stop_token& stop) {
    const std::stop_callback wake_up(stop, [this] { ::eventfd_write(wake_.get(), 1); });
    try {
      while (!stop.stop_requested() && !is_gone()) {
        ZmqSocket socket(context_.handle(), ZMQ_DEALER);
        prepare(socket);
        ZmqMonitor monitor(context_.handle(), socket, fmt::format("monitor-{}", ++sockets_));
        dial(socket);
        if (std::exchange(cut_off_, false)) come_back();
        while (!stop.stop_requested() && !is_gone() && !cut_off_) serve(socket.handle(), monitor);
        if (is_gone() || cut_off_) continue;
        send(control::Bye{});
        send_outgoing(socket.handle());
        socket.set(ZMQ_LINGER, 1000);
      }
    } catch (const Error& error) {
      lose(error.kind(), error.what());
    }
  }

  void prepare(ZmqSocket& socket) {
    use_curve_client(socket.handle(), key_.client_keys(), key_.server_keys().public_key);
    socket.set(ZMQ_LINGER, 0);
    socket.set(ZMQ_SNDHWM, 0);
    socket.set(ZMQ_IPV6, 1);
    const std::int64_t most = kMaxControlBytes + 4096;  // and CURVE's share
    psring::check(zmq_setsockopt(socket.handle(), ZMQ_MAXMSGSIZE, &most, sizeof most) == 0, "ZeroMQ: {}",
                  zmq_strerror(errno));
    open_ = false;
    failed_handshakes_ = 0;
  }

  void dial(ZmqSocket& socket) {
    if (zmq_connect(socket.handle(), ("tcp://" + address_).c_str()) != 0)
      psring::fail(ErrorKind::usage, "--rdzv-endpoint {}: {}", options_.endpoint, zmq_strerror(errno));
  }

  void serve(void* socket, ZmqMonitor& monitor) {
    const Moment planned = next_deadline();
    zmq_pollitem_t items[] = {{socket, 0, ZMQ_POLLIN, 0},
                              {monitor.socket().handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, wake_.get(), ZMQ_POLLIN, 0},
                              {nullptr, options_.stop_fd, ZMQ_POLLIN, 0}};
    const bool may_stop = options_.stop_fd >= 0 && !welcome_;
    zmq_poll(items, may_stop ? 4 : 3, poll_milliseconds(clock_.now(), planned));
    // Where this process stood still, the coordinator's silence says nothing.
    if (welcome_ && clock_.now() - planned > welcome_->heartbeat_timeout / 2) heard_ = clock_.now();
    polled_ = clock_.now();
    if (may_stop && (items[3].revents & ZMQ_POLLIN) != 0) return lose(ErrorKind::timeout, "interrupted while joining");
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
    const bool disconnected = read_monitor(monitor);
    while (const auto bytes = receive_part(socket, buffer_)) take(*bytes);
    if (disconnected) {
      cut_off(fmt::format("the coordinator ({}) closed the connection", options_.endpoint));
      if (cut_off_) return;
    }
    send_outgoing(socket);
    watch();
  }

  Moment next_deadline() const {
    if (!welcome_) return join_deadline_;
    const Moment silence = heard_ + welcome_->heartbeat_timeout;
    if (away_) return silent_ ? *away_ : std::min(*away_, silence);
    return std::min(next_heartbeat_, silence);
  }

  /// The coordinator is not there. It is waited for, over a new connection, where it may come back.
  void cut_off(const std::string& text) {
    if (!welcome_ && options_.patient) {
      cut_off_ = true;
      return;
    }
    if (!welcome_ || welcome_->patience == Nanoseconds(0) || (finished() && has_said_all()))
      return lose(ErrorKind::peer_lost, text);
    if (!away_) away_ = clock_.now() + welcome_->patience;
    cut_off_ = true;
  }
  /// Says who this is and where it was, and all that may not have been heard.
  void come_back() {
    const std::scoped_lock lock(mutex_);
    outgoing_.clear();
    marks_.clear();
    control::Hello again = hello();
    if (!welcome_) {
      outgoing_.push_back(encode_control(again));
      return;
    }
    again.rank = welcome_->rank;
    again.epoch = told_epoch_;
    again.duty = self_;
    again.running = members_ && members_epoch_ == told_epoch_;
    outgoing_.push_back(encode_control(again));
    if (told_epoch_ == epoch_) outgoing_.insert(outgoing_.end(), standing_.begin(), standing_.end());
    outgoing_.insert(outgoing_.end(), unconfirmed_.begin(), unconfirmed_.end());
  }

  /// True where an open link broke.
  bool read_monitor(ZmqMonitor& monitor) {
    using Event = ZmqMonitor::Event;
    bool disconnected = false;
    while (const auto event = monitor.next()) {
      if (event == Event::ready) open_ = true;
      if (event == Event::closed && open_) disconnected = true;
      const bool failed = event == Event::rejected;
      if (event == Event::denied || (failed && ++failed_handshakes_ >= kFailedHandshakes))
        lose(
            ErrorKind::unauthorised,
            fmt::format("--rdzv-endpoint {}: the handshake failed: --key is not the coordinator's", options_.endpoint));
    }
    return disconnected;
  }

  void take(std::span<const std::byte> bytes) {
    if (std::exchange(away_, std::nullopt)) {
      next_heartbeat_ = clock_.now();
      change([&] { silent_ = false; });
    }
    heard_ = clock_.now();
    try {
      std::visit([&](auto&& message) { on(std::forward<decltype(message)>(message)); }, decode_control(bytes));
    } catch (const Error& error) {
      lose(error.kind(), fmt::format("the coordinator ({}): {}", options_.endpoint, error.what()));
    }
  }

  void on(control::Welcome&& message) {
    if (welcome_) return;  // welcome back
    next_heartbeat_ = clock_.now();
    change([&] {
      epoch_ = told_epoch_ = message.epoch;
      self_ = {options_.role, message.rank};
      welcome_ = std::move(message);
    });
  }
  void on(control::Refused&& message) {
    lose(message.kind, fmt::format("--rdzv-endpoint {}: {}", options_.endpoint, message.text));
  }
  void on(control::Members&& message) {
    change([&] {
      told_epoch_ = std::max(told_epoch_, message.epoch);
      if (options_.role == Role::agent) epoch_ = told_epoch_;  // they go on through all epochs
      members_ = std::move(message.members);
      members_epoch_ = message.epoch;
      self_ = message.self;
    });
  }
  void on(control::Regroup&& message) {
    change([&] {
      if (message.epoch <= told_epoch_) return;
      told_epoch_ = message.epoch;
      regroup_text_ = std::move(message.text);
    });
  }
  void on(control::StartRoles&& message) {
    change([&] { orders_.push_back({Order::Kind::start, std::move(message.roles), {}}); });
  }
  void on(control::EndRoles&& message) {
    change([&] { orders_.push_back({Order::Kind::end, std::move(message.roles), {}}); });
  }
  void on(control::Notice&& message) {
    change([&] { orders_.push_back({Order::Kind::tell, {}, std::move(message.text)}); });
  }
  void on(control::Lost&& message) { latch(ErrorKind::peer_lost, message.text); }
  void on(control::Abort&& message) {
    const bool is_agent = options_.role == Role::agent;
    change([&] {
      interrupted_.signal = message.signal;
      culprit_ = message.culprit;
    });
    latch(message.kind, is_agent ? message.text : "the job has failed: " + message.text);
  }
  void on(control::Finish&& message) {
    change([&] {
      finished_ = true;
      if (message.interrupted.signal != 0) interrupted_ = message.interrupted;
    });
  }
  void on(control::Pause&& message) {
    const std::scoped_lock lock(mutex_);
    if (message.epoch != epoch_) return;  // it is over for the coordinator, or has not begun here
    stop_signal_ = message.signal;
    const control::Paused answer{message.epoch, gate_.pause(), message.signal};
    standing_.push_back(encode_control(answer));
    queue(standing_.back());
  }
  void on(control::StopBefore&& message) {
    change([&] {
      if (message.epoch == epoch_) gate_.stop_before(message.step);
    });
  }
  void on(control::HeartbeatAck&& message) {
    const Nanoseconds now = clock_.now().time_since_epoch();
    const Nanoseconds round_trip = now - message.sent;
    if (++acks_ < kQuickHeartbeats) next_heartbeat_ = clock_.now();
    const std::scoped_lock lock(mutex_);
    if (round_trip < best_round_trip_) {
      best_round_trip_ = round_trip;
      clock_offset_ = message.clock - (message.sent + round_trip / 2);
    }
    acked_mark_ = std::max(acked_mark_, message.mark);
    for (; !marks_.empty() && marks_.front().mark <= message.mark; marks_.pop_front()) {
      const std::uint64_t first = sent_ - unconfirmed_.size();
      unconfirmed_.erase(
          unconfirmed_.begin(),
          unconfirmed_.begin() + static_cast<std::ptrdiff_t>(std::max(marks_.front().sent, first) - first));
    }
    news_.notify_all();
  }
  void on(auto&& message) {
    psring::fail(ErrorKind::protocol, "said '{}', which is not for it to say",
                 name_of(ControlMessage(std::forward<decltype(message)>(message))));
  }

  void send_outgoing(void* socket) {
    std::vector<std::vector<std::byte>> outgoing;
    {
      const std::scoped_lock lock(mutex_);
      outgoing.swap(outgoing_);
      const Moment now = clock_.now();
      if (welcome_ && !away_ && (heartbeat_now_ || now >= next_heartbeat_)) {
        heartbeat_now_ = false;
        next_heartbeat_ = now + welcome_->heartbeat_interval;
        marks_.push_back({++last_mark_, sent_});
        outgoing.push_back(encode_control(control::Heartbeat{now.time_since_epoch(), last_mark_}));
      }
    }
    for (const auto& bytes : outgoing) zmq_send(socket, bytes.data(), bytes.size(), ZMQ_DONTWAIT);
  }

  void watch() {
    const Moment now = clock_.now();
    if (welcome_ && now - polled_ > welcome_->heartbeat_timeout / 2) heard_ = now;  // it stood still since
    if (!welcome_) {
      if (now >= join_deadline_)
        lose(ErrorKind::timeout, fmt::format("--rdzv-endpoint {}: no coordinator answered within {:g} s",
                                             options_.endpoint, seconds(options_.join_timeout)));
      return;
    }
    if (away_) {
      if (now >= *away_)
        lose(ErrorKind::peer_lost, fmt::format("the coordinator ({}) did not come back within {:g} s",
                                               options_.endpoint, seconds(welcome_->patience)));
      else if (!silent_ && now - heard_ >= welcome_->heartbeat_timeout)
        change([&] { silent_ = true; });
    } else if (now - heard_ >= welcome_->heartbeat_timeout) {
      change([&] { silent_ = true; });
      cut_off(fmt::format("nothing from the coordinator ({}) for {:.1f} s", options_.endpoint, seconds(now - heard_)));
    }
  }

  /// Once the job has ended: servers report only then, all others before.
  bool has_said_all() const { return options_.role != Role::server; }
  /// The coordinator will not be heard any more. That is an error, unless it has nothing left to say.
  void lose(ErrorKind kind, const std::string& text) {
    const std::string line = prefix() + text;
    change([&] {
      if (gone_) return;
      gone_ = Error(kind, line);
      if (!error_ && !(finished_ && has_said_all())) error_ = gone_;
    });
  }
  void latch(ErrorKind kind, const std::string& text) {
    const std::string line = prefix() + text;
    change([&] {
      if (!error_) error_ = Error(kind, line);
    });
  }
  void change(auto&& what) {
    {
      const std::scoped_lock lock(mutex_);
      what();
      news_.notify_all();
    }
    const std::scoped_lock lock(changed_mutex_);
    if (changed_) changed_();
  }
  bool is_gone() const {
    const std::scoped_lock lock(mutex_);
    return gone_.has_value();
  }

  std::string prefix() const {
    if (options_.role == Role::agent) return "";
    return welcome_ ? fmt::format("[{}] rank {}: ", to_string(options_.role), self_.rank)
                    : fmt::format("[{}] ", to_string(options_.role));
  }

  const Options options_;
  const std::string address_;  ///< of the coordinator, in digits
  const JobKey key_;
  const Clock& clock_;
  const ZmqContext context_;
  const Fd wake_;
  const Moment join_deadline_;

  // Of the link's thread.
  bool open_ = false;
  bool cut_off_ = false;        ///< this socket is of no use any more
  std::optional<Moment> away_;  ///< the coordinator is; until when it is waited for
  int sockets_ = 0;
  int failed_handshakes_ = 0;
  int acks_ = 0;
  Moment heard_;
  Moment polled_;
  Moment next_heartbeat_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxControlBytes);

  // Guarded by mutex_; but the link's thread reads what it alone writes.
  mutable std::mutex mutex_;
  mutable std::condition_variable news_;
  std::vector<std::vector<std::byte>> outgoing_;
  std::optional<control::Welcome> welcome_;  ///< constant once it is there
  std::uint32_t epoch_ = 0;                  ///< that the caller is in
  std::uint32_t told_epoch_ = 0;             ///< the last that was told of
  std::string regroup_text_;                 ///< why
  Peer self_;
  std::optional<std::vector<Member>> members_;
  std::uint32_t members_epoch_ = 0;
  std::deque<Order> orders_;
  std::vector<std::vector<std::byte>> standing_;
  std::deque<std::vector<std::byte>> unconfirmed_;  ///< the last of all `sent_` surely
  std::uint64_t sent_ = 0;
  struct Mark {
    std::uint64_t mark = 0;  ///< of a heartbeat
    std::uint64_t sent = 0;  ///< before it
  };
  std::deque<Mark> marks_;  ///< of heartbeats that are not answered yet
  std::uint64_t appends_ = 0;
  StepGate gate_;  ///< of the epoch
  std::int32_t stop_signal_ = 0;
  control::Interruption interrupted_;
  Peer culprit_{Role::coordinator, 0};
  bool heartbeat_now_ = false;
  bool silent_ = false;
  std::optional<Error> error_;  ///< what the caller is told: the first
  std::optional<Error> gone_;   ///< why nothing will be received any more
  bool finished_ = false;
  std::uint64_t last_mark_ = 0;
  std::uint64_t acked_mark_ = 0;
  Nanoseconds clock_offset_{};
  Nanoseconds best_round_trip_ = Nanoseconds::max();

  std::mutex changed_mutex_;
  std::function<void()> changed_;

  std::jthread thread_;
};

ControlLink::ControlLink(Options options, const JobKey& key, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), key, clock)) {}
ControlLink::~ControlLink() = default;

std::uint32_t ControlLink::rank() const { return impl_->self().rank; }
const std::string& ControlLink::job() const { return impl_->welcome().job; }

void ControlLink::ready(Addresses addresses, std::uint64_t step, bool has_state) {
  impl_->tell(control::Ready{std::move(addresses), impl_->epoch(), step, has_state});
}
void ControlLink::stuck(const Error& error) {
  impl_->send_surely(control::Stuck{impl_->epoch(), std::string(error.what()).substr(0, kErrorBytes)});
}
void ControlLink::resumed(std::uint64_t step) { impl_->send_surely(control::Resumed{impl_->epoch(), step}); }
std::uint32_t ControlLink::epoch() const { return impl_->epoch(); }
void ControlLink::await_epoch(Moment deadline) { impl_->await_epoch(deadline); }
std::vector<Member> ControlLink::members(Moment deadline) const { return impl_->members(deadline); }

void ControlLink::append(const std::string& file, std::span<const std::byte> bytes) {
  psring::check(is_safe_file_name(file), "'{}' is no name for a file of the run folder", file);
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMaxAppendBytes));
    impl_->append(file, piece);
    bytes = bytes.subspan(piece.size());
  }
}
void ControlLink::report(std::string json) { impl_->tell(control::Report{std::move(json)}); }
void ControlLink::progress(std::string text) { impl_->send(control::Progress{std::move(text)}); }
void ControlLink::fail(const Error& error) {
  impl_->send_surely(control::Failed{error.kind(), std::string(error.what()).substr(0, kErrorBytes)});
}
void ControlLink::done(std::uint64_t step, bool stopped) { impl_->done(step, stopped); }
Peer ControlLink::culprit() const { return impl_->culprit(); }
bool ControlLink::failed() const { return impl_->failed(); }
/// Every coordinator has to know; a second signal replaces nothing.
void ControlLink::interrupt(int signal, bool at_once) { impl_->tell(control::Interrupt{signal, at_once}); }
bool ControlLink::may_begin(std::uint64_t step) { return impl_->may_begin(step); }
control::Interruption ControlLink::interrupted() const { return impl_->interrupted(); }
void ControlLink::flush(Moment deadline) { impl_->flush(deadline); }
void ControlLink::check() const { impl_->check(); }
bool ControlLink::finished() const { return impl_->finished(); }
void ControlLink::await_finish() const { impl_->await_finish(); }
void ControlLink::on_change(std::function<void()> changed) { impl_->on_change(std::move(changed)); }
Nanoseconds ControlLink::clock_offset() const { return impl_->clock_offset(); }
std::optional<ControlLink::Order> ControlLink::next_order(Moment deadline) { return impl_->next_order(deadline); }
bool ControlLink::silent() const { return impl_->silent(); }
Nanoseconds ControlLink::heartbeat_timeout() const { return impl_->heartbeat_timeout(); }
bool ControlLink::patient() const { return impl_->patience() > Nanoseconds(0); }
void ControlLink::role_exited(control::RoleExited exit) { impl_->send_surely(std::move(exit)); }

}  // namespace psring::net
