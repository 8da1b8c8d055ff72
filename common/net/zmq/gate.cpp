#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <zmq.h>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/crowd.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/zmq/gate.h>

namespace psring::net {
namespace {

// The events of handshakes do not name their connections. A connection whose handshake failed ends next.
constexpr int kWatched =
    ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

/// True for CURVE handshakes in which one of the keys is wrong.
bool is_failed_proof(std::uint16_t event, std::int32_t value) {
  return event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH ||
         (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL && value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC);
}

/// Duplicates the descriptor of the socket. Returns nothing if the connection is gone or no descriptor is free.
Fd hold(int connection) { return Fd(::fcntl(connection, F_DUPFD_CLOEXEC, 0)); }

/// Returns the socket's cookie; nothing if the descriptor is closed.
std::optional<std::uint64_t> cookie_of(int socket) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return std::nullopt;
  return cookie;
}

/// Resets the connection and drops data that ZeroMQ has not read yet, so that ZeroMQ reads no more of it.
void reset(const Fd& socket) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  ::connect(socket.get(), &nowhere, sizeof nowhere);
}

}  // namespace

ZmqGate::ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, const Limits& limits)
    : refusals_(refusals),
      limits_(limits),
      listener_(listener.handle()),
      monitor_(context.handle(), ZMQ_PAIR),
      wake_(make_eventfd()),
      arrivals_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!arrivals_) fail(ErrorKind::data, "cannot watch a socket: {}", std::strerror(errno));
  const std::string address = fmt::format("inproc://gate-{}", listener_);
  monitor_.set(ZMQ_LINGER, 0);
  monitor_.set(ZMQ_RCVHWM, 0);  // a limit would make ZeroMQ's I/O thread wait
  const bool watched = zmq_socket_monitor(listener_, address.c_str(), kWatched) == 0 &&
                       zmq_connect(monitor_.handle(), address.c_str()) == 0;
  check(watched, "ZeroMQ: cannot watch a socket: {}", zmq_strerror(errno));
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

ZmqGate::~ZmqGate() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  zmq_socket_monitor(listener_, nullptr, 0);
}

void ZmqGate::trust(int connection) { judge(connection, Verdict::trusted); }

void ZmqGate::note_wrong_key(int connection) { judge(connection, Verdict::wrong_key); }

/// Descriptors' numbers are used again: a cookie names the connection, whenever the thread reads it.
void ZmqGate::judge(int connection, Verdict verdict) {
  const std::optional<std::uint64_t> cookie = cookie_of(connection);
  if (!cookie) return;  // the client has left
  const MutexLock lock(mutex_);
  verdicts_[*cookie] = verdict;
}

void ZmqGate::serve(const std::stop_token& stop) {
  const SystemClock clock;
  zmq_pollitem_t items[] = {{monitor_.handle(), 0, ZMQ_POLLIN, 0},
                            {nullptr, wake_.get(), ZMQ_POLLIN, 0},
                            {nullptr, arrivals_.get(), ZMQ_POLLIN, 0}};
  while (!stop.stop_requested()) {
    const Moment next = strangers_.empty() ? kNever : strangers_.front().deadline;
    zmq_poll(items, 3, poll_milliseconds(clock.now(), next));
    const Moment now = clock.now();
    // `turn_away` reads `verdicts_` after bytes were counted: a client that may send more was trusted before it got the
    // answer.
    poll_arrivals();
    take_events(now);
    turn_away(now);
    drop_stale_verdicts();
  }
}

/// An event has two parts: its number (16 bits) and value (32 bits), then the endpoint.
void ZmqGate::take_events(Moment now) {
  for (;;) {
    char first[6];
    char endpoint[256];
    if (zmq_recv(monitor_.handle(), first, sizeof first, ZMQ_DONTWAIT) != sizeof first) return;
    zmq_recv(monitor_.handle(), endpoint, sizeof endpoint, ZMQ_DONTWAIT);
    std::uint16_t event = 0;
    std::int32_t value = 0;
    std::memcpy(&event, first, sizeof event);
    std::memcpy(&value, first + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_ACCEPTED) on_accepted(value, now);
    if (is_failed_proof(event, value)) ++failed_proofs_;
    if (event == ZMQ_EVENT_DISCONNECTED) on_disconnected(value);
    if (strangers_.size() > 2 * limits_.most) turn_away(now);  // limits the list during a burst
  }
}

/// ZeroMQ may have closed the connection since, and another file may have reused its number. In that case ZeroMQ's
/// disconnect event is already in the queue that is being read, and removes this entry.
void ZmqGate::on_accepted(int connection, Moment now) {
  Fd held = hold(connection);
  if (!held && errno == EMFILE && !strangers_.empty()) {
    turn_away_of_most();
    held = hold(connection);
  }
  if (!held) return count_refusal(refusals_, Refusal::unfinished);  // the connection is gone
  const std::uint64_t cookie = cookie_of(held.get()).value_or(0);
  const std::uint64_t origin = origin_of(remote_endpoint(held));
  const Stranger& stranger =
      strangers_.emplace_back(++accepted_, connection, std::move(held), cookie, origin, now + limits_.patience);
  if (limits_.most_bytes == UINT64_MAX) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // one event per arrival, although ZeroMQ reads the data
  event.data.u64 = stranger.number;
  ::epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, stranger.held.get(), &event);
  if (sent_too_much(stranger)) flooding_.insert(stranger.number);
}

void ZmqGate::poll_arrivals() {
  constexpr int kAtATime = 256;
  epoll_event events[kAtATime];
  const int count = ::epoll_wait(arrivals_.get(), events, kAtATime, 0);
  for (int i = 0; i < count; ++i) {
    const auto stranger = std::find_if(strangers_.begin(), strangers_.end(),
                                       [&](const Stranger& other) { return other.number == events[i].data.u64; });
    if (stranger != strangers_.end() && sent_too_much(*stranger)) flooding_.insert(stranger->number);
  }
}

bool ZmqGate::sent_too_much(const Stranger& stranger) const {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(stranger.held.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_bytes_received > limits_.most_bytes;
}

void ZmqGate::on_disconnected(int connection) {
  const bool failed_proof = failed_proofs_ > 0;
  if (failed_proof) --failed_proofs_;
  std::erase_if(strangers_, [&](Stranger& stranger) {
    if (stranger.connection != connection) return false;
    const std::optional<Verdict> verdict = verdict_of(stranger);
    stranger.wrong_key = stranger.wrong_key || failed_proof || verdict == Verdict::wrong_key;
    if (verdict != Verdict::trusted) count(stranger);
    unwatch(stranger);
    return true;
  });
}

std::optional<ZmqGate::Verdict> ZmqGate::verdict_of(const Stranger& stranger) {
  const MutexLock lock(mutex_);
  const auto found = verdicts_.find(stranger.cookie);
  return found == verdicts_.end() ? std::nullopt : std::optional(found->second);
}

void ZmqGate::count(const Stranger& stranger) {
  count_refusal(refusals_, stranger.wrong_key ? Refusal::wrong_key : Refusal::unfinished);
}

/// Closing our duplicate does not end the epoll watch, because ZeroMQ still has the socket open.
void ZmqGate::unwatch(const Stranger& stranger) const {
  ::epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, stranger.held.get(), nullptr);
}

/// Removes the stranger at once, so that its disconnect event is not counted as a second refusal.
void ZmqGate::turn_away(std::deque<Stranger>::iterator stranger) {
  hang_up(*stranger);
  strangers_.erase(stranger);
}

void ZmqGate::turn_away_of_most() {
  turn_away(most_crowding(strangers_, [](const Stranger& stranger) { return std::optional(stranger.origin); }));
}

void ZmqGate::hang_up(const Stranger& stranger) {
  count(stranger);  // before the client can see the shutdown
  unwatch(stranger);
  ::shutdown(stranger.held.get(), SHUT_RDWR);
}

/// A client whose proof was wrong stays for now: the answer that tells it so is on its way.
void ZmqGate::turn_away(Moment now) {
  std::set<std::uint64_t> matched;
  std::erase_if(strangers_, [&](Stranger& stranger) {
    const std::optional<Verdict> verdict = verdict_of(stranger);
    if (verdict) matched.insert(stranger.cookie);
    if (verdict == Verdict::wrong_key) stranger.wrong_key = true;
    if (verdict == Verdict::trusted) {
      unwatch(stranger);
      return true;
    }
    if (!flooding_.contains(stranger.number)) return false;
    hang_up(stranger);
    reset(stranger.held);
    return true;
  });
  flooding_.clear();
  while (!strangers_.empty() && strangers_.front().deadline <= now) turn_away(strangers_.begin());
  while (strangers_.size() > limits_.most) turn_away_of_most();
  const MutexLock lock(mutex_);
  for (const std::uint64_t cookie : matched) verdicts_.erase(cookie);
}

/// ZeroMQ reports a connection before this code can judge it. So if a cookie belongs to no stranger for a whole round,
/// that client has left.
void ZmqGate::drop_stale_verdicts() {
  const MutexLock lock(mutex_);
  std::erase_if(verdicts_, [this](const auto& verdict) { return unmatched_.contains(verdict.first); });
  unmatched_.clear();
  for (const auto& [cookie, verdict] : verdicts_) unmatched_.insert(cookie);
}

int connection_of(zmq_msg_t& message) { return zmq_msg_get(&message, ZMQ_SRCFD); }

}  // namespace psring::net
