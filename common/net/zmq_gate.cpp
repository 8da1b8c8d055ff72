#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stop_token>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <zmq.h>

#include <psring/common/base/error.h>
#include <psring/common/base/poll.h>
#include <psring/common/net/zmq_gate.h>

namespace psring::net {
namespace {

// Of a handshake that has succeeded the event does not say which connection it was.
constexpr int kWatched = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED;

/// A second descriptor of the socket; none where it has gone meanwhile, or descriptors have run out.
Fd hold(int connection) { return Fd(::fcntl(connection, F_DUPFD_CLOEXEC, 0)); }

}  // namespace

ZmqGate::ZmqGate(ZmqContext& context, const ZmqSocket& listener, Refusals* refusals, Nanoseconds patience)
    : refusals_(refusals),
      patience_(patience),
      listener_(listener.handle()),
      monitor_(context.handle(), ZMQ_PAIR),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  check(static_cast<bool>(wake_), "no eventfd: {}", std::strerror(errno));
  const std::string address = fmt::format("inproc://gate-{}", listener_);
  monitor_.set(ZMQ_LINGER, 0);
  monitor_.set(ZMQ_RCVHWM, 0);  // ZeroMQ's I/O thread would wait for room
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

void ZmqGate::trust(int connection) {
  const std::scoped_lock lock(mutex_);
  trusted_.insert(connection);
}

void ZmqGate::serve(const std::stop_token& stop) {
  const SystemClock clock;
  zmq_pollitem_t items[] = {{monitor_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_.get(), ZMQ_POLLIN, 0}};
  while (!stop.stop_requested()) {
    const Moment next = strangers_.empty() ? kNever : strangers_.front().deadline;
    zmq_poll(items, 2, poll_milliseconds(clock.now(), next));
    const Moment now = clock.now();
    // Before the events are read: ZeroMQ has told of the acceptance of each of them by now.
    std::set<int> trusted;
    {
      const std::scoped_lock lock(mutex_);
      std::swap(trusted, trusted_);
    }
    std::erase_if(trusted, [this](int connection) { return forget(connection); });
    take_events(trusted, now);
  }
}

/// An event is two parts: its number (16 bits) and value (32), and the endpoint.
void ZmqGate::take_events(const std::set<int>& trusted, Moment now) {
  for (;;) {
    char first[6];
    char endpoint[256];
    if (zmq_recv(monitor_.handle(), first, sizeof first, ZMQ_DONTWAIT) != sizeof first) return turn_away(trusted, now);
    zmq_recv(monitor_.handle(), endpoint, sizeof endpoint, ZMQ_DONTWAIT);
    std::uint16_t event = 0;
    std::int32_t value = 0;
    std::memcpy(&event, first, sizeof event);
    std::memcpy(&value, first + sizeof event, sizeof value);
    if (event == ZMQ_EVENT_ACCEPTED) on_accepted(value, now);
    if (event == ZMQ_EVENT_DISCONNECTED && forget(value) && !trusted.contains(value)) count_refusal(refusals_);
    if (strangers_.size() > 2 * kMost) turn_away(trusted, now);  // a burst
  }
}

/// ZeroMQ may have closed it since, and its number be another file's: it has told of that, too, before it did so, and
/// with that event, which is among those that are being read, we let go of it.
void ZmqGate::on_accepted(int connection, Moment now) {
  Fd held = hold(connection);
  if (!held && errno == EMFILE && !strangers_.empty()) {
    turn_away_oldest();
    held = hold(connection);
  }
  if (!held) return count_refusal(refusals_);  // it has gone
  strangers_.push_back({connection, std::move(held), now + patience_});
}

bool ZmqGate::forget(int connection) {
  return std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.connection == connection; }) > 0;
}

/// Who is hung up on is forgotten at once, and so not counted a second time when ZeroMQ tells of its end.
void ZmqGate::turn_away_oldest() {
  count_refusal(refusals_);  // before anybody sees it
  ::shutdown(strangers_.front().held.get(), SHUT_RDWR);
  strangers_.pop_front();
}

void ZmqGate::turn_away(const std::set<int>& trusted, Moment now) {
  std::erase_if(strangers_, [&](const Stranger& stranger) { return trusted.contains(stranger.connection); });
  while (!strangers_.empty() && (strangers_.size() > kMost || strangers_.front().deadline <= now)) turn_away_oldest();
}

int connection_of(zmq_msg_t& message) { return zmq_msg_get(&message, ZMQ_SRCFD); }

}  // namespace psring::net
